"""What stands on the public topics, as types: schemas, `tail` and consumers in Python read these.    [design 6]

A new field has a default, a type never changes, a meaning never changes: a reader of today reads tomorrow's records.
"""

from typing import Annotated, Final, Literal

import msgspec

Date = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}$", description="local date, YYYY-MM-DD")]
Slot = Annotated[str, msgspec.Meta(pattern=r"^\d{2}:\d{2}$", description="local start of the slot, HH:MM")]
Cell = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{15}$", description="H3 index")]
PolicyId = Annotated[str, msgspec.Meta(pattern=r"^b2:[0-9a-f]{32}$", description="BLAKE2b-128 of the canonical policy")]
Instant = Annotated[str, msgspec.Meta(description="ISO 8601 with an offset")]
Speed = Annotated[float, msgspec.Meta(ge=0, description="in `unit`")]
Epsilon = Annotated[float, msgspec.Meta(ge=0)]


class NoiseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The noise that `raw` carries: public.

    `laplace`: on the value. `laplace_ratio`: the value is a ratio of two sums with Laplace noise on each.
    """

    kind: Literal["laplace", "laplace_ratio"]
    scale: (
        Annotated[
            float, msgspec.Meta(ge=0, description="in `unit`; 0 where no noise was needed; a ratio has no one scale")
        ]
        | None
    ) = None


class ReleaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One release on `hats.means`. Records with equal `release_id` are equal byte for byte."""

    release_id: Annotated[str, msgspec.Meta(description="policy/dateTslot/cell; also the record's key")]
    policy_id: PolicyId
    status: Literal["released", "suppressed", "budget_exhausted", "incomplete"]
    seq: Annotated[int, msgspec.Meta(ge=1, description="number of this commit within policy and date")] | None = None
    cell: Cell
    date: Date
    slot: Slot
    start: Instant
    end: Instant
    mean: Annotated[float, msgspec.Meta(ge=0, description="`raw` cut to [0, upper bound]")] | None = None
    raw: Annotated[float, msgspec.Meta(description="the noisy value, a multiple of the policy's grid")] | None = None
    unit: Literal["km/h"] | None = None
    noise: NoiseRecord | None = None
    interval95: tuple[Speed, Speed] | None = None
    covers: (
        Annotated[Literal["noise"], msgspec.Meta(description="what interval95 covers: not clipping, not sampling")]
        | None
    ) = None
    estimator: str
    epsilon: Epsilon
    relation: Literal["replace", "add_remove"]
    released_at: Instant


class QueryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One answer on `hats.queries`: a query about one cell and slot on the local dates of one period.

    Records with equal `release_id` are equal byte for byte.
    """

    release_id: Annotated[str, msgspec.Meta(description="policy/dateTslot/cell/query; also the record's key")]
    policy_id: PolicyId
    status: Literal["released", "suppressed", "budget_exhausted"]
    seq: Annotated[int, msgspec.Meta(ge=1, description="number of this commit within policy and date")] | None = None
    query: str
    kind: Literal["mean_speed", "over_speed_limit"]
    cell: Cell
    date: Annotated[Date, msgspec.Meta(description="the last date with this slot: after it the query is answered")]
    slot: Slot
    start: Instant
    end: Instant
    first_date: Date
    last_date: Date
    days: Annotated[int, msgspec.Meta(ge=1, description="dates from the first to the last")]
    days_used: Annotated[int, msgspec.Meta(ge=0, description="those with data")]
    missing: Annotated[tuple[Date, ...], msgspec.Meta(description="those without")] = ()
    reason: (
        Annotated[Literal["too_few_user_days", "missing_days"], msgspec.Meta(description="why the query is suppressed")]
        | None
    ) = None
    user_days: Annotated[int, msgspec.Meta(ge=0, description="N; only where counts are public")] | None = None
    speed_limit: Annotated[float, msgspec.Meta(ge=0, description="km/h, of over_speed_limit")] | None = None
    mean: Annotated[float, msgspec.Meta(ge=0, description="`raw` cut to what is possible")] | None = None
    raw: Annotated[float, msgspec.Meta(description="the noisy value, a multiple of the policy's grid")] | None = None
    unit: Literal["km/h", "vehicles/day"] | None = None
    noise: NoiseRecord | None = None
    interval95: tuple[Speed, Speed] | None = None
    covers: Annotated[Literal["noise"], msgspec.Meta(description="what interval95 covers")] | None = None
    epsilon: Annotated[Epsilon, msgspec.Meta(description="what this answer costs on each of its days")]
    epsilon_user_day: Annotated[
        float, msgspec.Meta(ge=0, description="what all answers of the query cost a user on each of its days")
    ]
    most_hats: Annotated[int, msgspec.Meta(ge=1, description="in how many of them a user's day can be")]
    relation: Literal["replace", "add_remove"]
    released_at: Instant


class ReservedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a query over days costs a user on one of its days: `epsilon` in each of `places`; 0: there was no room."""

    query: str
    epsilon: Epsilon
    places: Annotated[int, msgspec.Meta(ge=0)]


class EpsilonDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The day's loss as (epsilon, delta)."""

    epsilon: Epsilon
    delta: Annotated[float, msgspec.Meta(gt=0, lt=1)]


class BudgetRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A day's ledger on `hats.budget`, keyed by `policy/date`. Of several, the one with the greatest `seq` holds."""

    policy: str
    policy_id: PolicyId
    date: Date
    seq: Annotated[int, msgspec.Meta(ge=0, description="number of changes of the day's ledger")]
    releases: Annotated[int, msgspec.Meta(ge=0)]
    epsilon_sum: Epsilon
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
    total: (
        Annotated[float, msgspec.Meta(ge=0, description="unit `user`: what all days have cost one user so far")] | None
    ) = None
    replaces: Annotated[str, msgspec.Meta(description="the policy that this one follows")] | None = None
    from_date: Date | None = msgspec.field(default=None, name="from")
    total_limit: Annotated[float, msgspec.Meta(ge=0, description="unit `user`: what all days may cost")] | None = None


class TelemetryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One reading on the telemetry topic; the key is the vehicle's id, an empty value is a tick."""

    vehicle: Annotated[str, msgspec.Meta(min_length=1, description="at most 128 bytes of UTF-8")]
    time: Annotated[str | int | float, msgspec.Meta(description="ISO 8601 with an offset, or epoch milliseconds")]
    lat: Annotated[float, msgspec.Meta(ge=-90, le=90)]
    lon: Annotated[float, msgspec.Meta(ge=-180, le=180)]
    speed: float
    unit: Literal["km/h", "m/s", "mph", "kn"] = "km/h"


class ReportRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One report on the topic `reports`: a device's own mean in one HAT, with the device's own noise on it."""

    id: Annotated[
        str,
        msgspec.Meta(pattern=r"^[0-9a-f]{32}$", description="random, new each local day; also the record's key"),
    ]
    policy_id: PolicyId
    cell: Cell
    date: Date
    slot: Slot
    value: Annotated[float, msgspec.Meta(description="km/h, a multiple of the policy's grid; may be below 0")]
    epsilon: Annotated[float, msgspec.Meta(gt=0, description="of the noise on `value`: the policy's local_epsilon")]


RELEASE: Final = msgspec.json.Decoder(ReleaseRecord)
QUERY: Final = msgspec.json.Decoder(QueryRecord)
BUDGET: Final = msgspec.json.Decoder(BudgetRecord)
