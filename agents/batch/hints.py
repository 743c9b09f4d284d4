"""Hints for files of which few records, or none, were accepted: the likely cause, from the outcomes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from hatcast.stream.policy.continual_keys import AtEnd
from hatcast.stream.policy.policy import ContinualKeys, Policy
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.readings.recording import NOT_OF_FORMAT

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
            ("their speeds are negative" if policy.value is None else "their values are not finite")
            + ", or above policy.reject_above ("
            + (
                "none"
                if policy.reject_above is None
                else f"{policy.reject_above / 1000:g} {policy.released_value.unit}"
            )
            + "): check the unit"
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
_NONE: Final[Mapping[str, int]] = MappingProxyType({})
# Stopped buses, and what the policy leaves out on purpose: no hint unless nothing is accepted.
_USUAL: Final = frozenset({Outcome.ZERO, Outcome.OUTSIDE_DATES, Outcome.OUTSIDE_HOURS, Outcome.OUTSIDE_CELLS})
_REASONS: Final = 3  # of undecodable records, the most frequent ones
_TOO_FAR: Final = (
    "no speed follows from their positions: those of one vehicle and day have to be 10 s to 150 s apart: docs/feeds.md"
)


def hints(
    outcomes: Mapping[str, int], policy: Policy, problems: Mapping[str, int] = _NONE, *, derives: bool = False
) -> Iterator[str]:
    """Yield a line if no record was accepted, or if one unusual outcome has more than half of the records.

    outcomes   as of `FoldResult`: outcome -> records; those of devices' reports have the prefix `reports.`
    problems   as of `FoldResult`: why records are undecodable
    derives    speeds are derived from positions
    """
    for prefix, kind in (("", "records"), ("reports.", "reports")):
        counts: dict[Outcome, int] = {each: outcomes.get(f"{prefix}{each}", 0) for each in Outcome}
        del counts[Outcome.HEARTBEAT]
        if prefix and not any(counts.values()):
            continue
        yield from _hint(counts, kind, policy, _NONE if prefix else problems, derives=derives and not prefix)


def account(outcomes: Mapping[str, int], problems: Mapping[str, int], *, derives: bool) -> str | None:
    """Return how many records of a recording are undecodable, and why, however few; None: none, or it is not known."""
    undecodable = outcomes.get(Outcome.UNDECODABLE, 0)
    reasons = _reasons(problems, undecodable, derives=derives)
    if reasons is None:
        return None
    return f"hint: {undecodable:,} of {sum(outcomes.values()):,} records are undecodable: {reasons}"


def _hint(
    counts: Mapping[Outcome, int], kind: str, policy: Policy, problems: Mapping[str, int], *, derives: bool
) -> Iterator[str]:
    records, accepted = sum(counts.values()), counts[Outcome.ACCEPTED]
    if not records:
        yield f"hint: the files have no {kind}: are they the right ones, and complete?"
        return
    reasons = _reasons(problems, counts[Outcome.UNDECODABLE], derives=derives)
    most = max((each for each in counts if each is not Outcome.ACCEPTED), key=lambda each: counts[each])
    if most not in _CAUSES or (accepted and (counts[most] <= _SHARE * records or most in _USUAL)):
        return
    start = f"{accepted:,}" if accepted else "none"
    cause = (reasons if most is Outcome.UNDECODABLE else None) or _CAUSES[most](policy)
    yield f"hint: {start} of {records:,} {kind} accepted; {counts[most]:,} are {most}: {cause}"


def _reasons(problems: Mapping[str, int], undecodable: int, *, derives: bool) -> str | None:
    """Return why records are undecodable, the most frequent reasons first; None: it is not known.

    Where speeds are derived, those that the reader did not count have a position, and no speed follows from it.
    """
    counted = Counter(problems)
    counted[_TOO_FAR if derives else NOT_OF_FORMAT] += undecodable - counted.total()
    counted = +counted
    if not counted or set(counted) == {NOT_OF_FORMAT}:
        return None
    found = counted.most_common(_REASONS)
    return found[0][0] if len(found) == 1 else "; ".join(f"{number:,} {reason}" for reason, number in found)


def _outside(policy: Policy) -> str:
    keys = policy.method
    if not isinstance(keys, ContinualKeys):
        return f"before policy.from ({policy.from_date})"
    before = f"before policy.continual.from ({keys.first})"
    if keys.at_end is not AtEnd.STOP:
        return before
    return f"{before}, or after its horizon of {keys.horizon_days} days"
