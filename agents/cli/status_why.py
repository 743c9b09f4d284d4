"""`hatcast status --why HOUR`: what an hour waits for, from the stored state and the clock of this machine.

For operators, as all of `hatcast status`: counts and watermarks of the telemetry are not private.
[docs/proofs.md, What else leaves, and what one bus could change in it]
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hatcast.agents.config.settings import Settings
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.worker.readiness import reserved_up_front
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar, Slot, closes_at, min_watermark
from hatcast.stream.ledger.progress import Mark
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.records.fields import is_answer, query_kind, release_id
from hatcast.stream.records.projections import HEAD
from hatcast.stream.release.schedule import earliest_send_ms, listed_cells, slots_between
from hatcast.stream.units import DAY_MS, NANO

NEXT: Final = "next"
_DAYS: Final = 10  # more than the local clock ever skips


def slot_asked(calendar: Calendar, policy: Policy, hour: str, watermarks: Sequence[int | None], now_ms: int) -> Slot:
    """Return the slot of `2022-01-02T09:00`, of `09:00` on the date that is being folded, or of `next`, which is the
    first that is not final. Raises HatcastError if no slot starts then.
    """
    newest = max((each for each in watermarks if each is not None), default=now_ms)
    if hour == NEXT:
        closed_ms = (min_watermark(watermarks) or newest) - policy.lateness_ms
        first, last = (calendar.local(closed_ms + days * DAY_MS).date() for days in (0, _DAYS))
        later = (slot for slot in slots_between(calendar, first, last) if slot.end_ms > closed_ms)
        return next(later, calendar.slot_at(closed_ms))
    date, _, name = hour.rpartition("T")
    slot = calendar.slot_named(date or calendar.local(newest).date().isoformat(), name)
    if slot is None:
        raise HatcastError(
            f"--why {hour}: no slot starts then; write a local start such as 2022-01-02T09:00, 09:00 on the date that"
            f" is being folded, or {NEXT}"
        )
    return slot


@dataclass(frozen=True, slots=True)
class StoredHour:
    """The stored state of one slot."""

    pending: int  # cells whose releases Kafka has not acknowledged
    published: int  # number of releases that it has
    sealed: bool  # whether the date is sealed: all of it is published
    first_ms: int | None  # start of the policy's first slot, under `add_remove`
    next_policy: str | None  # name of the policy that releases the date in place of this one
    # spent, limit: of the date, in 1e-9
    spent: int
    limit: int
    last: tuple[str, str] | None  # release id and `released_at` of a release of the newest slot that has any


async def read_hour(store: HatStore, ledger: LedgerStore, policy: Policy, slot: Slot) -> StoredHour:
    """Read the stored state of a slot."""
    hidden = policy.relation is Relation.ADD_REMOVE
    cells = listed_cells(policy) if hidden else list(await store.cells(slot.key))
    names = [release_id(policy.name, slot.key, cell) for cell in cells]
    next_policy, summary = await ledger.next_policy(), await ledger.summary(slot.date)
    progress = await ledger.progress.read() if hidden else None
    prefix, published = release_id(policy.name, slot.key, ""), await ledger.published(slot.date)
    through = 0 if progress is None else progress.through(Mark.PUBLISHED, range(store.partitions))
    return StoredHour(
        pending=0 if through >= slot.end_ms else (await ledger.are_published(slot.date, names)).count(False),
        published=sum(name.startswith(prefix) for name in published),
        sealed=slot.date <= await ledger.sealed_through(),
        first_ms=None if progress is None else progress.first_ms,
        next_policy=next_policy.name if next_policy is not None and slot.date >= next_policy.from_date else None,
        spent=summary.epsilon_user_day - reserved_up_front(summary),
        limit=policy.daily_limit_nano if summary.limit is None else summary.limit,
        last=await _last(ledger, slot.date, published),
    )


async def _last(ledger: LedgerStore, known: str, published: Sequence[str]) -> tuple[str, str] | None:
    """Return id and time of a release of the newest slot with any. known: a date whose published ids are read."""
    for date in reversed(await ledger.unsealed_dates()):
        names = published if date == known else await ledger.published(date)
        of_hats = [name for name in names if not query_kind(name) and not is_answer(name)]
        if of_hats:
            (found,) = await ledger.find(date, [max(of_hats)])
            if found is not None:
                return max(of_hats), HEAD.decode(found.record).released_at
    return None


def explain(
    settings: Settings, calendar: Calendar, slot: Slot, stored: StoredHour, topics: dict[str, Any], now_ms: int
) -> dict[str, Any]:
    """Return the reasons why a slot is not released, as JSON.

    topics     topic -> rows of its partitions, as `hatcast status --json` has them
    state      outside, running, waiting, final, released
    stages     where it waits: feed, fold, release; the page marks them
    waits_for  one line for each reason; none if it is released
    """
    policy, closes_ms, limit = settings.policy, closes_at(slot, settings.policy), stored.limit / NANO
    rows = [_partition(calendar, settings, name, row, slot, now_ms) for name, each in topics.items() for row in each]
    late = [row for row in rows if row["state"] not in ("ready", "current")]
    is_final = all(row["state"] == "ready" for row in rows)
    stages: list[str] = []
    if (outside := _outside(policy, calendar, slot, stored)) is not None:
        state, reasons = "outside", [outside]
    elif stored.sealed or (is_final and not stored.pending):
        state, reasons = "released", []
    elif is_final:
        state, stages = "final", ["release"]
        earliest_ms = earliest_send_ms(slot, policy) if policy.relation is Relation.ADD_REMOVE else 0
        reasons = [
            f"{stored.pending} releases are not published: see parts ledger, redis and group of /readyz of the workers"
            if now_ms >= earliest_ms
            else f"the releases are sent from {_time(calendar, earliest_ms, slot)} on"
        ]
    else:
        state = "running" if now_ms < closes_ms and not late else "waiting"
        stages = list(dict.fromkeys("feed" if row["state"] == "silent" else "fold" for row in late))
        reasons = [f"{row['name']}: {row['text']}" for row in late]
        if state == "running":
            reasons = [f"the time: it closes at {_time(calendar, closes_ms, slot)}"]
        elif not late:
            reasons = [f"{row['name']}: {row['text']}" for row in rows if row["state"] != "ready"]
    return {
        "slot": f"{slot.date}T{slot.name}",
        "start": calendar.local(slot.start_ms).isoformat(),
        "closes": calendar.local(closes_ms).isoformat(),
        "now": calendar.local(now_ms).isoformat(timespec="seconds"),
        "state": state,
        "stages": stages,
        "waits_for": reasons,
        "partitions": rows,
        "pending": stored.pending,
        "published": stored.published,
        "budget": {"date": slot.date, "limit": limit, "left": max(0, stored.limit - stored.spent) / NANO},
        "last_release": _last_release(calendar, stored.last),
    }


def _partition(
    calendar: Calendar, settings: Settings, name: str, row: dict[str, Any], slot: Slot, now_ms: int
) -> dict[str, Any]:
    """Return the row of a partition, with its state: ready, current, behind, silent or unread."""
    closes_ms, clock = closes_at(slot, settings.policy), row["clock"]
    behind = None if row["offset"] is None else row["end"] - row["offset"]
    since = "" if clock is None else _time(calendar, clock, slot)
    if clock is None:
        state, text = "unread", "no record of it is folded yet"
    elif clock >= closes_ms:
        state, text = "ready", f"past {_time(calendar, closes_ms, slot)}"
    elif now_ms - clock <= 2 * settings.idle_after_ms:
        state, text = "current", f"at {since}"
    elif behind:
        state, text = "behind", f"{behind} records since {since} are not folded: no worker reads it, or too slowly"
    else:
        state, text = "silent", f"nothing since {since}"
    label = "partition" if name == settings.topics.telemetry else f"{name} partition"
    name = f"{label} {row['partition']}"
    return {"name": name, "clock": clock, "behind": behind, "state": state, "text": text}


def _outside(policy: Policy, calendar: Calendar, slot: Slot, stored: StoredHour) -> str | None:
    if stored.next_policy is not None:
        return f"it belongs to the policy {stored.next_policy}"
    if slot.outside is not None:
        which = "dates" if slot.outside == Outcome.OUTSIDE_DATES else "hours"
        return f"it is outside of the {which} of policy {policy.name}"
    if stored.first_ms is not None and slot.start_ms < stored.first_ms:
        return f"the policy's first slot starts at {calendar.local(stored.first_ms).isoformat()}"
    return None


def _last_release(calendar: Calendar, last: tuple[str, str] | None) -> dict[str, Any] | None:
    """Return slot and time of the last release, and how long after the slot's end that was."""
    if last is None:
        return None
    date, _, name = last[0].split("/")[1].partition("T")
    slot = calendar.slot_named(date, name)
    after_s = None if slot is None else datetime.fromisoformat(last[1]).timestamp() - slot.end_ms / 1000
    return {"slot": f"{date}T{name}", "released_at": last[1], "after_end_s": after_s}


def _time(calendar: Calendar, instant_ms: int, slot: Slot) -> str:
    """Return a local time of day, with its date if that is not the slot's."""
    local = calendar.local(instant_ms)
    date = "" if local.date().isoformat() == slot.date else f"{local.date()} "
    return f"{date}{local:%H:%M:%S}"


def lines(why: dict[str, Any]) -> Iterable[str]:
    """Yield the lines that `hatcast status --why` prints."""
    verb = {"released": "is released", "outside": "is not released", "final": "is final"}.get(why["state"], "is open")
    yield f"{why['slot']} {verb}" + ("" if not why["waits_for"] else "; it waits for:" if why["stages"] else ":")
    yield from (f"  {reason}" for reason in why["waits_for"])
    yield f"closes          {why['closes']}; it is {why['now']}"
    yield f"published       {why['published']} releases of it, {why['pending']} to come"
    budget, last = why["budget"], why["last_release"]
    yield f"budget left     {budget['left']:g} of {budget['limit']:g} on {budget['date']}"
    if last is not None:
        after = "" if last["after_end_s"] is None else f", {last['after_end_s']:.0f} s after its end"
        yield f"last release    of {last['slot']}, at {last['released_at']}{after}"
