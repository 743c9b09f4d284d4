"""States of running sums in the middle of a horizon, written to Redis as a commit writes them."""

from typing import Final

from redis.asyncio import Redis

from bench.release.state import SLOT, cells_of
from hatcast.agents.config.settings import Settings
from hatcast.agents.redis.keys import DomainKeys
from hatcast.stream.checksums import with_checksum
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import Row, pack
from hatcast.stream.fold.users import horizon_of
from hatcast.stream.ledger import rows
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.policy import ContinualKeys
from hatcast.stream.release.continual import CellHat, RunningSums
from hatcast.stream.release.hats import HatChunks

_USERS: Final = 10  # each enters fewer slots than `max_slots`


async def fill_states(redis: Redis, settings: Settings, hats: int) -> int:
    """Write the state of each cell after all slots of the horizon before `SLOT`; return its bytes."""
    policy, domain = settings.policy, settings.topics.telemetry
    if not isinstance(policy.method, ContinualKeys):
        return 0
    sums, calendar, state = RunningSums(policy), Calendar(policy), None
    horizon = horizon_of(policy.method, SLOT.partition("/")[0])
    slots = [slot for date in horizon.dates for slot in calendar.slots_of(date) if slot.key < SLOT]
    for number, slot in enumerate(slots):
        row = Row((number % _USERS).to_bytes(8, "big"), 2, 60_000, 30_000, 1)
        (release,) = sums.advance(slot, [CellHat("", HatChunks([pack([row])]), state)], SystemNoise())
        state = release.state
    if state is None:
        raise ValueError(f"{SLOT} is the first slot of its horizon")
    keys, first = DomainKeys(domain), horizon.dates[0]
    key = keys.row(rows.states(policy.name, first))
    states = {cell: with_checksum(f"{rows.states(policy.name, first)}/{cell}", state) for cell in cells_of(hats)}
    await redis.hset(key, mapping=states)  # type: ignore[arg-type]  # bytes are a value
    await redis.hset(keys.row(rows.horizons(policy.name)), f"cells:{first}", str(hats))
    return len(state)
