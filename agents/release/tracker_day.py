"""The day that a tracker works on, from what Redis stores."""

from datetime import date as local_date
from datetime import timedelta
from typing import Any

from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.watermark import min_watermark
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import TRACKER_QUERIES
from hatcast.stream.records.fields import Status


async def closed_by(store: HatStore, ledger: LedgerStore, calendar: Calendar, date: str) -> Status | None:
    """Return why a tracker makes no more queries on a date; None if it does.

    `incomplete` if the date lacks records, `budget_exhausted` if the day's limit had no room for its queries.
    """
    complete_from = await store.complete_from()
    if complete_from is not None and calendar.day_start(date) < complete_from:
        return Status.INCOMPLETE
    reserved = (await ledger.summary(date)).queries.get(TRACKER_QUERIES)
    return Status.BUDGET_EXHAUSTED if reserved is not None and not reserved.places else None


async def read_tracker(store: HatStore, ledger: LedgerStore, policy: Policy) -> dict[str, Any]:
    """Return a tracker's stored state, for operators.

    settled   local date through which days are settled; None: none is
    date      local date at work, the first one with contributions that is not settled; None: there is none
    ended     whether no partition accepts readings of that date any more
    closed    status of the HATs for which no more queries are made on that date; None: queries are made
    """
    calendar, settled = Calendar(policy), await ledger.tracker.settled()
    dates = {slot.partition("/")[0] for slot in await store.open_slots()}
    date = min((each for each in dates if each > settled), default=None)
    if date is None:
        return {"settled": settled or None, "date": None, "ended": None, "closed": None}
    watermark = min_watermark(await store.watermarks())
    next_date = (local_date.fromisoformat(date) + timedelta(days=1)).isoformat()
    ends_ms = calendar.previous_day_end(next_date) + policy.lateness_ms
    closed = await closed_by(store, ledger, calendar, date)
    return {
        "settled": settled or None,
        "date": date,
        "ended": watermark is not None and watermark >= ends_ms,
        "closed": closed,
    }
