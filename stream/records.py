"""What stands on the topics, as types: schemas, AsyncAPI, `tail` and consumers in Python read these.    [design 6]

A new field has a default, a type never changes, a meaning never changes: a reader of today reads tomorrow's records.
What has no value is absent, never null. `RULES` of a type say when a field that may be absent is there.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

import msgspec


@dataclass(frozen=True, slots=True)
class When:
    """Fields that depend on the value of another.

    field    has one of `values`, or (without values) is there
    has      then these are there
    allows   then these may be there. In every other case both kinds are absent
    """

    field: str
    values: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()


def _text(pattern: str, description: str) -> msgspec.Meta:
    return msgspec.Meta(pattern=pattern, description=description)


def _dated(pattern: str, form: str, description: str) -> msgspec.Meta:
    return msgspec.Meta(pattern=pattern, description=description, extra_json_schema={"format": form})


_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME: Final = "[0-9]{2}:[0-9]{2}"
_CELL: Final = "[0-9a-f]{15}"
_NAME: Final = "[A-Za-z0-9._-]{1,80}"  # as hatcast.stream.policy.checks.check_name

Name = Annotated[str, _text(f"^{_NAME}$", "ASCII letters, digits, '-', '_' and '.'")]
Date = Annotated[str, _dated(f"^{_DATE}$", "date", "local date, YYYY-MM-DD")]
Slot = Annotated[str, _text(f"^{_TIME}$", "local start of the slot, HH:MM")]
Cell = Annotated[str, _text(f"^{_CELL}$", "H3 index")]
DeviceId = Annotated[str, _text("^[0-9a-f]{32}$", "random, new each local day; also the record's key")]
PolicyId = Annotated[str, _text("^b2:[0-9a-f]{32}$", "BLAKE2b-128 of the canonical policy")]
Instant = Annotated[
    str,
    _dated(
        # Before about 1972 some offsets had seconds.
        rf"^{_DATE}T{_TIME}:[0-9]{{2}}(\.[0-9]{{3}})?(Z|[+-]{_TIME}(:[0-9]{{2}})?)$",
        "date-time",
        "ISO 8601 with an offset",
    ),
]
Speed = Annotated[float, msgspec.Meta(ge=0, description="in `unit`")]
Interval = Annotated[
    tuple[Speed, Speed], msgspec.Meta(description="around `mean`, cut like it: 95 % of the noise is within")
]
Epsilon = Annotated[float, msgspec.Meta(ge=0, description="privacy loss")]
Number = Annotated[
    int, msgspec.Meta(ge=1, description="number of this commit within policy and date; only where counts are public")
]
Relation = Annotated[
    Literal["replace", "add_remove"],
    msgspec.Meta(
        description="what the noise hides: `replace` how fast a vehicle went; `add_remove` also that it was there"
    ),
]
BLEND: Final = ("weight", "users", "public_epsilon")
ANSWER: Final = ("mean", "raw", "unit", "noise", "interval95", "covers")


class NoiseRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The noise that `raw` carries: public.

    `laplace`: on the value. `laplace_ratio`: the value is a ratio of two sums with Laplace noise on each. A blend is of
    a mean with noise of `central_scale` and of devices' reports with noise of `local_scale` on each.
    """

    RULES: ClassVar = (
        When("kind", ("laplace",), has=("scale",)),
        When("kind", ("laplace_blend", "gaussian_blend"), allows=("central_scale", "local_scale")),
    )

    kind: Annotated[
        Literal["laplace", "laplace_ratio", "laplace_blend", "gaussian_blend"],
        msgspec.Meta(description="its distribution"),
    ]
    scale: (
        Annotated[
            float, msgspec.Meta(ge=0, description="in `unit`; 0 where no noise was needed; a ratio has no one scale")
        ]
        | None
    ) = None
    central_scale: Annotated[float, msgspec.Meta(gt=0, description="in `unit`; absent: no such noise")] | None = None
    local_scale: Annotated[float, msgspec.Meta(gt=0, description="in `unit`; absent: no such noise")] | None = None


class UsersRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How many users of either group a blend is made of; only where counts are public."""

    central: Annotated[int, msgspec.Meta(ge=0, description="that trust the operator")]
    local: Annotated[int, msgspec.Meta(ge=0, description="whose devices do not")]


class ReleaseRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One release on `hats.means`. Records with equal `release_id` are equal byte for byte."""

    RULES: ClassVar = (
        When("status", ("released",), has=ANSWER, allows=BLEND),
        When("relation", ("replace",), has=("seq",)),
        When("target", allows=("device_epsilon", "delta", *BLEND)),
    )

    release_id: Annotated[
        str, _text(f"^{_NAME}/{_DATE}T{_TIME}/{_CELL}$", "policy/dateTslot/cell; also the record's key")
    ]
    policy_id: PolicyId
    status: Annotated[
        Literal["released", "suppressed", "budget_exhausted", "incomplete"],
        msgspec.Meta(
            description="`suppressed`: too few users or, under `add_remove`, readings; `budget_exhausted`: the day's"
            " limit had no room; `incomplete`: records of the day were lost. Only `released` has an answer"
        ),
    ]
    seq: Number | None = None
    cell: Cell
    date: Date
    slot: Slot
    start: Instant
    end: Instant
    mean: Annotated[float, msgspec.Meta(ge=0, description="`raw` cut to [0, upper bound]")] | None = None
    raw: Annotated[float, msgspec.Meta(description="the noisy value, a multiple of the policy's grid")] | None = None
    unit: Annotated[Literal["km/h"], msgspec.Meta(description="of all values")] | None = None
    noise: NoiseRecord | None = None
    interval95: Interval | None = None
    covers: (
        Annotated[Literal["noise"], msgspec.Meta(description="what interval95 covers: not clipping, not sampling")]
        | None
    ) = None
    weight: (
        Annotated[
            float, msgspec.Meta(ge=0, le=1, description="in a blend, of central users' mean; reports have the rest")
        ]
        | None
    ) = None
    users: UsersRecord | None = None
    public_epsilon: (
        Annotated[float, msgspec.Meta(ge=0, description="of a blend, against those who see only what is published")]
        | None
    ) = None
    estimator: Annotated[
        str, msgspec.Meta(min_length=1, description="of the policy; docs/estimators.md, docs/hybrid.md")
    ]
    epsilon: Annotated[
        Epsilon, msgspec.Meta(description="of the policy: what a release costs whoever trusts the operator")
    ]
    target: (
        Annotated[Literal["user_mean"], msgspec.Meta(description="of a policy with devices: the mean of users' means")]
        | None
    ) = None
    device_epsilon: Annotated[float, msgspec.Meta(gt=0, description="of each device's own noise")] | None = None
    delta: (
        Annotated[float, msgspec.Meta(gt=0, lt=1, description="of Gaussian noise: it belongs to every epsilon here")]
        | None
    ) = None
    relation: Relation
    released_at: Instant


class QueryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer on `hats.queries`: a query about one cell and slot on the local dates of one period.

    Records with equal `release_id` are equal byte for byte.
    """

    RULES: ClassVar = (
        When("status", ("released",), has=ANSWER),
        When("status", ("suppressed",), has=("reason",)),
        When("status", ("released", "suppressed"), allows=("missing", "user_days")),
        When("relation", ("replace",), has=("seq",), allows=("user_days",)),
        When("kind", ("over_speed_limit",), has=("speed_limit",)),
    )

    release_id: Annotated[
        str, _text(f"^{_NAME}/{_DATE}T{_TIME}/{_CELL}/{_NAME}$", "policy/dateTslot/cell/query; also the record's key")
    ]
    policy_id: PolicyId
    status: Annotated[
        Literal["released", "suppressed", "budget_exhausted"],
        msgspec.Meta(description="`suppressed`: see `reason`; `budget_exhausted`: a day's limit had no room"),
    ]
    seq: Number | None = None
    query: Annotated[Name, msgspec.Meta(description="its name in the policy")]
    kind: Annotated[
        Literal["mean_speed", "over_speed_limit"],
        msgspec.Meta(description="the mean of vehicles' day means, or vehicles a day above `speed_limit`"),
    ]
    cell: Cell
    date: Annotated[Date, msgspec.Meta(description="the last date with this slot: after it the query is answered")]
    slot: Slot
    start: Instant
    end: Instant
    first_date: Annotated[Date, msgspec.Meta(description="local date on which the period begins")]
    last_date: Annotated[Date, msgspec.Meta(description="local date on which the period ends, itself included")]
    days: Annotated[int, msgspec.Meta(ge=1, description="dates from the first to the last")]
    days_used: Annotated[int, msgspec.Meta(ge=0, description="those with data")]
    speed_limit: Annotated[float, msgspec.Meta(ge=0, description="km/h, of over_speed_limit")] | None = None
    missing: Annotated[tuple[Date, ...], msgspec.Meta(description="those without")] = ()
    reason: (
        Annotated[Literal["too_few_user_days", "missing_days"], msgspec.Meta(description="why the query is suppressed")]
        | None
    ) = None
    user_days: Annotated[int, msgspec.Meta(ge=0, description="N; only where counts are public")] | None = None
    mean: Annotated[float, msgspec.Meta(ge=0, description="`raw` cut to what is possible")] | None = None
    raw: Annotated[float, msgspec.Meta(description="the noisy value, a multiple of the policy's grid")] | None = None
    unit: Annotated[Literal["km/h", "vehicles/day"], msgspec.Meta(description="of all values")] | None = None
    noise: NoiseRecord | None = None
    interval95: Interval | None = None
    covers: Annotated[Literal["noise"], msgspec.Meta(description="what interval95 covers")] | None = None
    epsilon: Annotated[Epsilon, msgspec.Meta(description="what this answer costs on each of its days")]
    epsilon_user_day: Annotated[
        float, msgspec.Meta(ge=0, description="what all answers of the query cost a user on each of its days")
    ]
    most_hats: Annotated[int, msgspec.Meta(ge=1, description="in how many of them a user's day can be")]
    relation: Relation
    released_at: Instant


class ReservedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a query over days costs a user on one of its days: `epsilon` in each of `places`; 0: there was no room."""

    query: Annotated[str, msgspec.Meta(description="its name; `cells`: what a private list of cells has cost")]
    epsilon: Epsilon
    places: Annotated[int, msgspec.Meta(ge=0, description="HATs that a user's day can be in")]


class EpsilonDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The day's loss as (epsilon, delta)."""

    epsilon: Epsilon
    delta: Annotated[float, msgspec.Meta(gt=0, lt=1, description="of the policy")]


class BudgetRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A day's ledger on `hats.budget`, keyed by `policy/date`. Of several, the one with the greatest `seq` holds."""

    RULES: ClassVar = (When("replaces", has=("from",)), When("total", has=("total_limit",)))

    policy: Annotated[Name, msgspec.Meta(description="its name")]
    policy_id: PolicyId
    date: Date
    seq: Annotated[int, msgspec.Meta(ge=0, description="number of changes of the day's ledger")]
    releases: Annotated[int, msgspec.Meta(ge=0, description="of this policy, that were charged")]
    epsilon_sum: Annotated[Epsilon, msgspec.Meta(description="of this policy's releases")]
    epsilon_user_day: Annotated[
        float, msgspec.Meta(ge=0, description="the most that one user's day has cost so far, over all policies")
    ]
    limit: Annotated[
        float, msgspec.Meta(ge=0, description="the least daily limit of the policies that charged the day")
    ]
    day_bound: Annotated[float, msgspec.Meta(ge=0, description="the most that the whole day can cost")]
    epsilon_delta: EpsilonDelta
    max_hats_per_day: Annotated[int, msgspec.Meta(ge=1, description="K of this policy")] | None = None
    queries: Annotated[
        tuple[ReservedRecord, ...], msgspec.Meta(description="what is reserved for queries over several days")
    ] = ()
    replaces: Annotated[Name, msgspec.Meta(description="the policy that this one follows")] | None = None
    from_date: Annotated[Date, msgspec.Meta(description="its first local date")] | None = msgspec.field(
        default=None, name="from"
    )
    total: (
        Annotated[float, msgspec.Meta(ge=0, description="unit `user`: what all days have cost one user so far")] | None
    ) = None
    total_limit: Annotated[float, msgspec.Meta(ge=0, description="unit `user`: what all days may cost")] | None = None


class TelemetryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One reading on the telemetry topic; the key is the vehicle's id, an empty value is a tick.

    As hatcast's own feeds send it; docs/feeds.md tells what else it reads.
    """

    vehicle: Annotated[str, msgspec.Meta(min_length=1, description="at most 128 bytes of UTF-8")]
    time: Annotated[str | int | float, msgspec.Meta(description="ISO 8601 with an offset, or epoch milliseconds")]
    lat: Annotated[float, msgspec.Meta(ge=-90, le=90, description="degrees north, WGS 84")]
    lon: Annotated[float, msgspec.Meta(ge=-180, le=180, description="degrees east, WGS 84")]
    speed: Annotated[float, msgspec.Meta(description="in `unit`")]
    unit: Annotated[Literal["km/h", "m/s", "mph", "kn"], msgspec.Meta(description="of speed")] = "km/h"


class ReportRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One report on the topic `reports`: a device's own mean in one HAT, with the device's own noise on it."""

    id: DeviceId
    policy_id: PolicyId
    cell: Cell
    date: Date
    slot: Slot
    value: Annotated[float, msgspec.Meta(description="km/h, a multiple of the policy's grid; may be below 0")]
    epsilon: Annotated[float, msgspec.Meta(gt=0, description="of the noise on `value`: the policy's local_epsilon")]


RELEASE: Final = msgspec.json.Decoder(ReleaseRecord)
QUERY: Final = msgspec.json.Decoder(QueryRecord)
BUDGET: Final = msgspec.json.Decoder(BudgetRecord)
