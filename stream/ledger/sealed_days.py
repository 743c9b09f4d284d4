"""Sealed days: one seal per policy, and one summary of at most 1 kB per day.    [decisions/0013]

Once a day is sealed nothing of it is committed or adopted, and its summary replaces its records. Both are also records
of the registry topic, from which a Redis that lost them is restored.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import OutputPartition, Position
from hatcast.stream.ledger.book import lower_total_limit
from hatcast.stream.ledger.progress import restore_marks
from hatcast.stream.ledger.recovery import (
    RecoveryCheck,
    has_adopted,
    output_partition_of,
    position_of,
    positions,
    require,
)
from hatcast.stream.ledger.view import DamagedRow, Decision, Draft, View, Wanted, number_of, text_of

SEALED_KEY: Final = "sealed/"
DAY_KEY: Final = "day/"


class TopicStart(msgspec.Struct, frozen=True, array_like=True):
    """The offset in each partition of an output topic at which reading starts. `topic_id`: see `Position`."""

    topic_id: str
    offsets: dict[int, int]


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's seal. Registry key `sealed/POLICY`."""

    policy: str
    through: str  # the last sealed local date; all earlier days are sealed too
    rules: str  # under which that date was released: `Calendar.rules_of`
    partitions: int  # number of release partitions of the policy
    starts: dict[str, TopicStart]  # output topic -> where reading starts; all earlier records are of sealed days
    first_ms: int | None = None  # start of the policy's first slot (ms UTC), under `add_remove`
    done_ms: int | None = None  # end of the last sealed slot (ms UTC), under `add_remove`
    has_horizons: bool = False  # whether the policy has running sums: their states cannot be read again from the topics

    def read_from(self, output: OutputPartition) -> Position | None:
        """Return the position before which an output partition has only records of sealed days; None if unknown."""
        start = self.starts.get(output.topic)
        if start is None or output.partition not in start.offsets:
            return None
        return Position(start.topic_id, start.offsets[output.partition])


class SealedDay(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's final part of a day's ledger. Registry key `day/POLICY/DATE`."""

    policy: str
    date: str
    cost: int  # its cost for one user (1e-9)
    sequence: int  # the day's ledger number at that time
    # limit, total_limit: of a day and of all days (1e-9), "" if charges have not set them
    limit: str
    total_limit: str
    fields: dict[str, str]  # the policy's fields of the day's ledger, values as text
    levels: dict[str, str]  # e(cell, slot) -> number of cells and slots with that e, both as text


def check_lost(lost: Collection[Sealed], calendar: Calendar) -> None:
    """Raise HatcastError if the last date of seals that Redis has lost was released under other rules than these.

    Readings around the midnight after it, which are folded again, would be on the next date as well.
    """
    if lost:
        last = max(lost, key=attrgetter("through"))
        calendar.check_rules([(last.through, last.rules)])


def registry_records(sealed: Sealed, days: Mapping[str, SealedDay]) -> dict[str, bytes]:
    """Return key -> value of the registry records of a seal and its days."""
    found = {f"{SEALED_KEY}{sealed.policy}": msgspec.json.encode(sealed)}
    for date, day in days.items():
        found[f"{DAY_KEY}{day.policy}/{date}"] = msgspec.json.encode(day)
    return found


_BY_POLICY: Final = ("commits", "releases", "epsilon", "cap", "fineness", "query", "told")


def seal(
    view: View, name: str, through: str, token: str, adopted: Mapping[OutputPartition, Position]
) -> Decision[bool]:
    """Seal a policy's days through a local date.

    False if the ledger is not recovered under this token, or has not adopted the output partitions up to `adopted`.
    """
    draft = Draft(view)
    is_whole = draft.compare(rows.RECOVERY, "token") == token.encode() and all(
        has_adopted(draft, output.field, end.stored.encode()) for output, end in adopted.items()
    )
    if is_whole and (draft.get(rows.SEALED, name) or b"") < through.encode():
        draft.raise_to(rows.SEALED, name, through)
    return Decision(is_whole, draft.changes)


def shrink(view: View, name: str, date: str) -> Decision[bool]:
    """Delete the records and costs of a sealed day, and keep its summary; False if it is not sealed."""
    draft = Draft(view)
    sealed = draft.compare(rows.SEALED, name)
    if sealed is None or date.encode() > sealed:
        return Decision(result=False, changes=draft.changes)
    for key in (rows.releases, rows.published, rows.costs, rows.seen):
        draft.delete(key(date, name))
    draft.set(rows.unsealed(name), date, None)
    draft.change_date(date)
    for field in view.whole(rows.OLDEST):  # includes days without a release, which nothing else deletes
        _, day, policy = _oldest_of(field)
        if policy == name and day.encode() <= sealed:
            draft.set(rows.OLDEST, field, None)
    return Decision(result=True, changes=draft.changes)


def day_rows(name: str, date: str) -> Wanted:
    """Return what `day_of` and, of each day, `restore_days` read."""
    return {rows.NONCES: {date}, rows.ledger(date): None, rows.levels(date, name): None, rows.TOTAL: {rows.LIMIT, date}}


def day_of(view: View, name: str, date: str) -> SealedDay | None:
    """Return the summary of a policy's part of a day; None if there is nothing. Raises DamagedRow, Unread."""
    key, levels = rows.ledger(date), rows.levels(date, name)
    texts = {field: text_of(key, value) for field, value in view.whole(key).items()}
    fields = {field: value for field, value in texts.items() if _is_of(field, name)}
    if not fields:
        return None
    limit = view.get(rows.TOTAL, rows.LIMIT)
    return SealedDay(
        policy=name,
        date=date,
        cost=_number(key, texts.get(f"cost:{name}", "0")),
        sequence=_number(key, texts.get("sequence", "0")),
        limit=texts.get("limit", ""),
        total_limit="" if limit is None else text_of(rows.TOTAL, limit),
        fields=fields,
        levels={level: text_of(levels, count) for level, count in view.whole(levels).items()},
    )


def starts_of(view: View, unsealed_from: str, name: str) -> dict[str, TopicStart]:
    """Return where reading the output topics starts once a policy's days before a date are sealed.

    All earlier records are of sealed days, of this policy or of others. Raises DamagedRow, Unread.
    """
    found = positions(view, rows.ADOPTED)
    for field, value in view.whole(rows.OLDEST).items():
        output_text, date, policy = _oldest_of(field)
        output, first = output_partition_of(rows.OLDEST, output_text), position_of(rows.OLDEST, value)
        known = found.get(output)
        is_open = policy != name or date >= unsealed_from
        if is_open and known is not None and known.topic_id == first.topic_id and first.offset < known.offset:
            found[output] = first
    ids = {output.topic: position.topic_id for output, position in found.items()}
    return {
        topic: TopicStart(
            topic_id, {output.partition: at.offset for output, at in found.items() if output.topic == topic}
        )
        for topic, topic_id in ids.items()
    }


def restore_days(
    view: View, check: RecoveryCheck, days: Sequence[SealedDay], through: Mapping[str, str]
) -> Decision[None]:
    """Restore summaries of sealed days, each in place of the stored rows of its policy and date.

    through   policy -> its last sealed date. If it is stored, another worker has restored all of the policy's days, and
              answers may have reserved more on them since
    Raises RecoveryEnded.
    """
    draft = Draft(view)
    require(draft, check)
    for day in days:
        if (draft.compare(rows.SEALED, day.policy) or b"") < through[day.policy].encode():
            _restore_day(draft, day)
    return Decision(None, draft.changes)


def restore_seals(view: View, check: RecoveryCheck, seals: Iterable[Sealed]) -> Decision[None]:
    """Restore seals, after all of their summaries. Raises RecoveryEnded."""
    draft = Draft(view)
    require(draft, check)
    for sealed in seals:
        stored = draft.compare(rows.SEALED, sealed.policy)
        if stored is not None and stored >= sealed.through.encode():
            continue
        if sealed.first_ms is not None and sealed.done_ms is not None:
            restore_marks(draft, sealed.policy, sealed.first_ms, sealed.done_ms, range(sealed.partitions))
        if sealed.has_horizons:  # the ledger lacks the states after these days
            draft.set(rows.horizons(sealed.policy), "lost", sealed.through.encode())
        draft.set(rows.SEALED, sealed.policy, sealed.through.encode())
    return Decision(None, draft.changes)


def _restore_day(draft: Draft, day: SealedDay) -> None:
    key, levels, cost = rows.ledger(day.date), rows.levels(day.date, day.policy), f"cost:{day.policy}"
    stored = draft.read_date(day.date)
    of_date = number_of(key, stored.get(cost, b"0"))
    for field, value in day.fields.items():
        draft.set(key, field, value.encode())
    for level in draft.whole(levels):
        draft.set(levels, level, None)
    for level, places in day.levels.items():
        draft.set(levels, level, places.encode())
    draft.set_number(key, cost, day.cost)
    draft.set_number(rows.TOTAL, day.date, draft.number(rows.TOTAL, day.date) - of_date + day.cost)
    draft.changes.nonces[rows.TOTAL] = None
    if day.sequence > draft.number(key, "sequence"):
        draft.set_number(key, "sequence", day.sequence)
    if day.limit and ("limit" not in stored or _number(key, day.limit) < number_of(key, stored["limit"])):
        draft.set(key, "limit", day.limit.encode())
    if day.total_limit:
        lower_total_limit(draft, _number(rows.TOTAL, day.total_limit))
    draft.change_date(day.date)
    draft.raise_to(rows.LAST, day.policy, day.date)


def _oldest_of(field: str) -> tuple[str, str, str]:
    """Return `topic/partition`, local date and policy. Raises DamagedRow."""
    parts = field.rsplit(" ", 2)
    if len(parts) != 3:
        raise DamagedRow(rows.OLDEST)
    return parts[0], parts[1], parts[2]


def _number(key: str, text: str) -> int:
    return number_of(key, text.encode())


def _is_of(field: str, name: str) -> bool:
    kind, _, rest = field.partition(":")
    return kind in _BY_POLICY and rest.partition(":")[0] == name
