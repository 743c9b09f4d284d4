"""Field types of the records, and the rules for their presence."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

ANSWER: Final = ("mean", "raw", "unit", "noise", "interval95", "covers")


@dataclass(frozen=True, slots=True)
class When:
    """Fields whose presence depends on another field.

    field    the condition: it has one of `values`, or (without values) it is present
    has      present if the condition holds
    allows   optional if the condition holds. Otherwise all of `has` and `allows` are absent
    needs    present if the condition holds. Otherwise they are optional
    """

    field: str
    values: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


def about(description: str, **bounds: Any) -> msgspec.Meta:
    """Return a description, with bounds such as `ge=0`."""
    return msgspec.Meta(description=description, **bounds)


def text(pattern: str, description: str) -> msgspec.Meta:
    """Return the description of a text with a pattern."""
    return about(description, pattern=pattern)


def _dated(pattern: str, form: str, description: str) -> msgspec.Meta:
    return about(description, pattern=pattern, extra_json_schema={"format": form})


DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME: Final = "[0-9]{2}:[0-9]{2}"
CELL: Final = "[0-9a-f]{15}"
SETTLEMENT: Final = "settlement"  # in place of a slot, in the release_id of a query of a tracker's settlement
PULSE: Final = "pulse"  # the same of a tracker's query of a whole slot
NAME: Final = "[A-Za-z0-9._-]{1,80}"  # as hatcast.stream.policy.checks.check_name

Name = Annotated[str, text(f"^{NAME}$", "ASCII letters, digits, '-', '_' and '.'")]
Date = Annotated[str, _dated(f"^{DATE}$", "date", "local date, YYYY-MM-DD")]
Slot = Annotated[str, text(f"^{TIME}$", "local start of the slot, HH:MM")]
Cell = Annotated[str, text(f"^{CELL}$", "H3 index")]
Remainder = Annotated[bool, about("present and true if listed finer cells overlap this one: it counts the rest only")]
DeviceId = Annotated[str, text("^[0-9a-f]{32}$", "random, new each local day; also the record's key")]
PolicyId = Annotated[str, text("^b2:[0-9a-f]{32}$", "BLAKE2b-128 of the canonical policy")]
Instant = Annotated[
    str,
    _dated(
        # Before about 1972 some offsets had seconds.
        rf"^{DATE}T{TIME}:[0-9]{{2}}(\.[0-9]{{3}})?(Z|[+-]{TIME}(:[0-9]{{2}})?)$",
        "date-time",
        "ISO 8601 with an offset",
    ),
]
ValueName = Annotated[
    str, text("^[a-z][a-z0-9_]{0,39}$", "name of the value, of a policy with `[policy.value]`; absent: the speed")
]
Speed = Annotated[
    Literal["journey"],
    about(
        "`journey`: the speed with standing included, of a policy with `drop_zero = false`; absent: the"
        " speed while moving, without readings of exactly 0, or another value"
    ),
]
Unit = Annotated[
    str, about("unit of all values: `km/h`, or that of the policy's `[policy.value]`", min_length=1, max_length=16)
]
Bound = Annotated[float, about("in `unit`")]
Interval = Annotated[tuple[Bound, Bound], about("around `mean`, clipped like it: 95 % of the noise is within")]
Epsilon = Annotated[float, about("privacy loss", ge=0)]
Number = Annotated[int, about("number of this commit within policy and date; present only if counts are public", ge=1)]
Relation = Annotated[
    Literal["replace", "add_remove"],
    about("what the noise hides: `replace` a vehicle's speeds; `add_remove` also its presence"),
]


AnyStatus = Literal["released", "suppressed", "budget_exhausted", "incomplete", "deferred"]
"""The values of `Status`, as types of records have them."""


class Status(StrEnum):
    """Outcome of a final HAT. `deferred`: a tracker made no query of it at the close of its slot."""

    RELEASED = "released"
    SUPPRESSED = "suppressed"
    BUDGET_EXHAUSTED = "budget_exhausted"
    INCOMPLETE = "incomplete"
    DEFERRED = "deferred"


_SLASHES: Final = 2  # in the release id of a HAT, and of a tracker's query


def release_id(policy: str, slot: str, cell: str) -> str:
    """Return a release id such as `surat-speed/2022-01-02T09:00/87608b0d2ffffff`; `slot` is `date/name`."""
    return f"{policy}/{slot.replace('/', 'T')}/{cell}"


def query_id(policy: str, date: str, kind: str, number: int) -> str:
    """Return the release id of a tracker's query that is not of one HAT, by its number on the date.

    kind   SETTLEMENT or PULSE
    """
    return f"{policy}/{date}T{kind}/{number:05d}"


def policy_of(record_id: str) -> str:
    """Return the policy's name in a release id, an estimate id or a running id."""
    return record_id.partition("/")[0]


def date_of(release_id: str) -> str:
    """Return the local date in a release id."""
    return release_id.partition("/")[2].partition("T")[0]


def quantity_of(speed: str | None) -> str:
    """Return the name of the averaged quantity, from the field `speed` of a record."""
    return "journey speed" if speed else "speed while moving"


def query_kind(release_id: str) -> str:
    """Return SETTLEMENT or PULSE for a tracker's query that is not of one HAT; "" for the release of a HAT."""
    kind = release_id.rpartition("/")[0].rpartition("T")[2]
    return kind if kind in (SETTLEMENT, PULSE) else ""


def is_answer(release_id: str) -> bool:
    """Return whether a release id is of an answer to a query over days: the query's name follows the cell."""
    return release_id.count("/") > _SLASHES


def is_settlement(release_id: str) -> bool:
    """Return whether a record is of a query of a settlement."""
    return query_kind(release_id) == SETTLEMENT


class NoiseRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Distribution of the noise in `raw`. Public.

    `laplace`: added to the value. `laplace_ratio`: the value is a ratio of two sums, each with Laplace noise. A blend
    combines a mean with noise of `central_scale` and devices' reports, each with noise of `local_scale`. `continual`: a
    sum of noises of standard deviation `sd`, correlated with those of the cell's other slots.
    """

    RULES: ClassVar = (
        When("kind", ("laplace",), has=("scale",)),
        When("kind", ("laplace_blend", "gaussian_blend"), allows=("central_scale", "local_scale")),
        When("kind", ("continual",), has=("sd",)),
    )

    kind: Annotated[
        Literal["laplace", "laplace_ratio", "laplace_blend", "gaussian_blend", "continual"], about("distribution")
    ]
    scale: (
        Annotated[
            float, about("in `unit`; 0 if no noise was needed; absent for a ratio, which has no single scale", ge=0)
        ]
        | None
    ) = None
    central_scale: Annotated[float, about("in `unit`; absent: no such noise", gt=0)] | None = None
    local_scale: Annotated[float, about("in `unit`; absent: no such noise", gt=0)] | None = None
    sd: Annotated[float, about("standard deviation, in `unit`", ge=0)] | None = None
