"""A process that commits HATs of one date in small batches, as fast as it can: URL NAME NUMBER HATS LIMIT.

It prints as JSON how many were released, and the numbers of all of its records.
"""

import asyncio
import json
import sys

from redis.asyncio import Redis

from hatcast.agents.redis.ledger_store import CommitGuard, LedgerStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.stream.ledger.proposals import Proposal
from tests.laws.redis_scripts import DAY, NANO
from tests.replayed import policy_of

BATCH = 4


async def main(url: str, name: str, number: int, hats: int, limit: int) -> None:
    """Commit as the owner of release partition NUMBER."""
    policy = policy_of(name=name, privacy={"epsilon": 1.0, "max_hats_per_day": 200, "daily_limit": float(limit)})
    async with Redis.from_url(url) as redis:
        state = await RecoveryStore(redis, name, name).read_state([number])
        guard = CommitGuard(state.token)
        guard.own(state.sequences)
        store, records = LedgerStore(redis, name, policy), list[bytes]()
        for first in range(0, hats, BATCH):
            some = [proposal(name, number, hat) for hat in range(first, first + BATCH)]
            records += [each.record for each in await store.commit(some, guard)]
    found = [json.loads(record) for record in records]
    json.dump([sum(each["released"] for each in found), [each["seq"] for each in found]], sys.stdout)


def proposal(name: str, number: int, hat: int) -> Proposal:
    place = f"{number}-{hat}/12:00"
    record, exhausted = ((b'{"released": %d, "seq": ' % released, b"}") for released in (1, 0))
    return Proposal(f"{name}/{DAY}T12:00/{place}", DAY, place, NANO, record, exhausted, release_partition=number)


if __name__ == "__main__":
    url, name, *numbers = sys.argv[1:]
    asyncio.run(main(url, name, *map(int, numbers)))
