"""Program that commits releases of a date, or of several, in batches: URL DOMAIN OWNER OWNERS RELEASES BATCH [DATES].

With DATES the records are as long as a release's, else short, as they were in older checkouts. It prints that it is
ready, waits for a line, and prints its seconds as JSON. It imports hatcast and its tests alone, so that PYTHONPATH may
name another checkout.
"""

import asyncio
import json
import re
import resource
import sys
import time
from pathlib import Path

from redis.asyncio import Redis

from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.stream.ledger.proposals import Proposal
from tests.integration.recovering import guard_of_all
from tests.replayed import policy_of

DAYS = [f"2022-01-{day:02}" for day in range(2, 32)]
_NANO = 10**9
Parts = tuple[tuple[bytes, bytes], tuple[bytes, bytes]]
_PARTS = (
    (b'{"status": "released", "mean": 31.25, "users": 12, "seq": ', b"}"),
    (b'{"status": "exhausted", "seq": ', b"}"),
)
_GOLDEN = Path(__file__).parents[1] / "schemas" / "golden" / "0.1.0" / "release"


async def main(url: str, domain: str, *numbers: int) -> None:
    """Commit as the owner of release partition OWNER, on the dates in turns of a batch."""
    owner, owners, releases, batch, *more = numbers
    dates, parts = (more[0], _golden_parts()) if more else (1, _PARTS)
    policy = policy_of(name=domain, privacy={"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 1_000_000.0})
    async with Redis.from_url(url) as redis:
        guard = await guard_of_all(redis, domain, domain, owners)
        guard.disown([each for each in range(owners) if each != owner])
        proposals = [
            _proposal(domain, DAYS[number // batch % dates], owner, number, parts) for number in range(releases)
        ]
        store = LedgerStore(redis, domain, policy)
        print("ready", flush=True)
        sys.stdin.readline()
        begun, costs = time.monotonic(), list[float]()
        for first in range(0, releases, batch):
            before = time.process_time()
            await store.commit(proposals[first : first + batch], guard)
            costs.append(time.process_time() - before)
        tenth = max(1, len(costs) // 10)
        found = {
            "wall_s": time.monotonic() - begun,
            "cpu_s": sum(costs),
            "last_over_first": sum(costs[-tenth:]) / sum(costs[:tenth]),
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        json.dump(found, sys.stdout)


def _golden_parts() -> Parts:
    released, exhausted = ((_GOLDEN / f"replace_{name}.json").read_bytes() for name in ("released", "budget_exhausted"))
    return _around_seq(released), _around_seq(exhausted)


def _around_seq(message: bytes) -> tuple[bytes, bytes]:
    value = message.partition(b'"value": ')[2].rstrip()[:-1]
    before, after = re.split(rb'(?<="seq":)\d+', value)
    return before, after


def _proposal(name: str, day: str, owner: int, number: int, parts: Parts) -> Proposal:
    place = f"{owner}-{number}/12:00"
    return Proposal(f"{name}/{day}T12:00/{place}", day, place, _NANO, *parts, fineness=3, release_partition=owner)


if __name__ == "__main__":
    url, domain, *numbers = sys.argv[1:]
    asyncio.run(main(url, domain, *map(int, numbers)))
