"""What queries over days ask of all that is kept for them."""

from typing import Final

from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.watermark import closes_at, min_watermark
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.queries import QueryPeriod, query_periods

NEVER: Final = "9999-99-99"  # a local date that does not come


async def asked_of_kept(kept: RetainedStore, policy: Policy, calendar: Calendar, until: str) -> list[QueryPeriod]:
    """What is asked of all that is kept, where the period ends before a local date; by closing slot."""
    return [one for one in query_periods(policy, calendar, await kept.slots()) if one.closing.date < until]


async def unanswered(store: HatStore, kept: RetainedStore, ledger: LedgerStore, policy: Policy) -> int:
    """How many answers about cells of which something is kept are due and not published."""
    least, calendar = min_watermark(await store.watermarks()), Calendar(policy)
    successor = await ledger.next_policy()
    missing = 0
    sealed_through = await ledger.sealed_through()
    for asked in await asked_of_kept(kept, policy, calendar, NEVER if successor is None else successor.from_date):
        if asked.closing.date <= sealed_through:
            continue  # kept again since its partition went back: all of it is answered
        if least is not None and least >= closes_at(asked.closing, policy):
            cells = await kept.cells([slot.key for slot in asked.slots])
            found = await ledger.find(asked.closing.date, [asked.release_id(cell) for cell in cells])
            missing += sum(record is None or not record.published for record in found)
    return missing
