"""Periods of queries over days for which contributions are retained."""

from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.watermark import closes_at, min_watermark
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.queries import QueryPeriod, query_periods


async def retained_periods(
    retained: RetainedStore, policy: Policy, calendar: Calendar, end_date: str
) -> list[QueryPeriod]:
    """Return the periods with retained contributions that end before a local date, by closing slot."""
    periods = query_periods(policy, calendar, await retained.slots())
    return [period for period in periods if period.closing.date < end_date]


async def count_unanswered(store: HatStore, retained: RetainedStore, ledger: LedgerStore, policy: Policy) -> int:
    """Count the answers that are due and not published, of cells with retained contributions."""
    watermark, calendar = min_watermark(await store.watermarks()), Calendar(policy)
    missing = 0
    sealed_through = await ledger.sealed_through()
    for period in await retained_periods(retained, policy, calendar, await ledger.end_date()):
        if period.closing.date <= sealed_through:
            continue  # retained again since its partition went back: all answers are published
        if watermark is not None and watermark >= closes_at(period.closing, policy):
            cells = await retained.cells([slot.key for slot in period.slots])
            records = await ledger.find(period.closing.date, [period.release_id(cell) for cell in cells])
            missing += sum(record is None or not record.published for record in records)
    return missing
