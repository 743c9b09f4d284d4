"""Hints for files of which few records, or none, were accepted: the likely cause, from the outcomes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

from hatcast.stream.policy.continual_keys import AtEnd
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Format, Recorded
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.readings.recording import NO_SPEED

_SHARE: Final = 0.5  # of the records: one such outcome alone is more than that of the policy's usual rejects

_CAUSES: Final[Mapping[Outcome, Callable[[Policy], str]]] = MappingProxyType(
    {
        Outcome.UNDECODABLE: lambda policy: (
            "they are not in the format that was named"
            + ("" if policy.value_name is None else f", or lack {policy.value_name} in {policy.released_value.unit}")
            + ": docs/feeds.md"
        ),
        Outcome.BAD_PLACE: lambda _: "their places are not latitudes and longitudes in degrees",
        Outcome.BAD_VALUE: lambda policy: (
            f"{_bad_value(policy)} above policy.reject_above ({_reject_above(policy)}): check the unit"
        ),
        Outcome.BAD_TIME: lambda _: (
            "their times are later than their arrivals, or not times: check the time zone, and that times have an"
            " offset such as +05:30"
        ),
        Outcome.ARRIVED_IN_FUTURE: lambda _: (
            "they are dated in the future of this machine's clock: check the recording's time zone, and the clock"
        ),
        Outcome.OUTSIDE_DATES: lambda policy: f"they are from {_outside(policy)}",
        Outcome.OUTSIDE_HOURS: lambda policy: (
            f"in {policy.timezone} their hours are not in policy.hours [{policy.hours[0]}, {policy.hours[1]}): is"
            " policy.timezone that of the recording?"
        ),
        Outcome.OUTSIDE_CELLS: lambda _: "their cells are not in the file of policy.cells: is it of this city?",
        Outcome.LATE: lambda _: "they arrived after their hours had closed: is the recording in order of arrival?",
        Outcome.WRONG_PARTITION: lambda _: "their partitions are not those of their vehicles",
        Outcome.ZERO: lambda policy: (
            f"their {'speeds' if policy.value_name is None else 'values'} are 0, which policy.drop_zero rejects"
        ),
        Outcome.OVER_PARTICIPATION: lambda _: (
            "their buses are in more cells or slots than [policy.continual] declares: check max_cells, max_slots and"
            " min_separation"
        ),
        Outcome.OTHER_POLICY: lambda _: "devices sent them for another policy_id",
    }
)
# Stopped buses, and what the policy leaves out on purpose: no hint unless nothing is accepted.
_USUAL: Final = frozenset({Outcome.ZERO, Outcome.OUTSIDE_DATES, Outcome.OUTSIDE_HOURS, Outcome.OUTSIDE_CELLS})
_SAMPLE: Final = 2_000  # first records
_DERIVE: Final = "they lack only their speed: `--derive-speed` (in Python `derive_speed`) derives it from positions"
_TOO_FAR: Final = (
    "no speed follows from their positions: those of one vehicle and day have to be 10 s to 150 s apart: docs/feeds.md"
)


def hints(
    outcomes: Mapping[str, int], policy: Policy, undecodable: Callable[[], str | None] = lambda: None
) -> Iterator[str]:
    """Yield a line if no record was accepted, or if one unusual outcome has more than half of the records.

    outcomes     as of `FoldResult`: outcome -> records; those of devices' reports have the prefix `reports.`
    undecodable  finds out why records are undecodable; None: it is not known
    """
    for prefix, kind in (("", "records"), ("reports.", "reports")):
        counts: dict[Outcome, int] = {each: outcomes.get(f"{prefix}{each}", 0) for each in Outcome}
        del counts[Outcome.HEARTBEAT]
        if prefix and not any(counts.values()):
            continue
        yield from _hint(counts, kind, policy, (lambda: None) if prefix else undecodable)


def _hint(
    counts: Mapping[Outcome, int], kind: str, policy: Policy, undecodable: Callable[[], str | None]
) -> Iterator[str]:
    records, accepted = sum(counts.values()), counts[Outcome.ACCEPTED]
    if not records:
        yield f"hint: the files have no {kind}: are they the right ones, and complete?"
        return
    most = max((each for each in counts if each is not Outcome.ACCEPTED), key=lambda each: counts[each])
    if most not in _CAUSES or (accepted and (counts[most] <= _SHARE * records or most in _USUAL)):
        return
    start = f"{accepted:,}" if accepted else "none"
    cause = (undecodable() if most is Outcome.UNDECODABLE else None) or _CAUSES[most](policy)
    yield f"hint: {start} of {records:,} {kind} accepted; {counts[most]:,} are {most}: {cause}"


def _outside(policy: Policy) -> str:
    continual = policy.continual
    if continual is None:
        return f"before policy.from ({policy.from_date})"
    before = f"before policy.continual.from ({continual.first})"
    if continual.at_end is not AtEnd.STOP:
        return before
    return f"{before}, or after its horizon of {continual.horizon_days} days"


def _bad_value(policy: Policy) -> str:
    return "their speeds are negative, or" if policy.value is None else "their values are not finite, or"


def _reject_above(policy: Policy) -> str:
    return "none" if policy.reject_above is None else f"{policy.reject_above / 1000:g} {policy.released_value.unit}"


def cause_of_undecodable(records: Iterable[tuple[int, Recorded]], feed: Format) -> str | None:
    """Return the cause that most of the first undecodable records share, without any of their data, else None.

    That they have a position but no speed comes first, because there is an option for it.
    """
    sample = [recorded for _, recorded in islice(records, _SAMPLE) if recorded.reading is None]
    lacking = sum(_has_position(recorded, feed) for recorded in sample)
    if 2 * lacking > len(sample):
        return _DERIVE if feed.derivation is None else _TOO_FAR
    problem, count = next(iter(Counter(recorded.problem for recorded in sample).most_common(1)), (None, 0))
    return problem if 2 * count > len(sample) else None


def _has_position(recorded: Recorded, feed: Format) -> bool:
    if feed.derivation is not None:
        return recorded.problem == NO_SPEED
    return feed.without_speed is not None and feed.without_speed.decode(recorded.raw) is not None
