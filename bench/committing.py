"""Program that commits releases of one date in batches: URL DOMAIN OWNER OWNERS RELEASES BATCH.

It prints that it is ready, waits for a line, and prints its seconds as JSON. It imports hatcast and its tests alone, so
that PYTHONPATH may name another checkout.
"""

import asyncio
import json
import sys
import time

from redis.asyncio import Redis

from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.stream.ledger.proposals import Proposal
from tests.integration.recovering import guard_of_all
from tests.replayed import policy_of

DAY = "2022-01-02"
_NANO = 10**9
_PARTS = (
    (b'{"status": "released", "mean": 31.25, "users": 12, "seq": ', b"}"),
    (b'{"status": "exhausted", "seq": ', b"}"),
)


async def main(url: str, domain: str, owner: int, owners: int, releases: int, batch: int) -> None:
    """Commit as the owner of release partition OWNER."""
    policy = policy_of(name=domain, privacy={"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 1_000_000.0})
    async with Redis.from_url(url) as redis:
        guard = await guard_of_all(redis, domain, domain, owners)
        guard.disown([each for each in range(owners) if each != owner])
        proposals = [_proposal(domain, owner, number) for number in range(releases)]
        store = LedgerStore(redis, domain, policy)
        print("ready", flush=True)
        sys.stdin.readline()
        begun = time.monotonic(), time.process_time()
        for first in range(0, releases, batch):
            await store.commit(proposals[first : first + batch], guard)
        json.dump({"wall_s": time.monotonic() - begun[0], "cpu_s": time.process_time() - begun[1]}, sys.stdout)


def _proposal(name: str, owner: int, number: int) -> Proposal:
    place = f"{owner}-{number}/12:00"
    return Proposal(f"{name}/{DAY}T12:00/{place}", DAY, place, _NANO, *_PARTS, fineness=3, release_partition=owner)


if __name__ == "__main__":
    url, domain, *numbers = sys.argv[1:]
    asyncio.run(main(url, domain, *map(int, numbers)))
