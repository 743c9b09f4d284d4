"""Record types of the topics. JSON Schemas, AsyncAPI, `tail` and Python consumers are derived from them.

Forward compatible: a new field has a default, and the type and meaning of a field never change, so that today's
consumer can read tomorrow's records. A field without a value is absent, never null; the `RULES` of a type say when an
optional field is present.
"""

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from hatcast.stream.record_fields import (
    CELL,
    DATE,
    NAME,
    SETTLEMENT,
    TIME,
    Cell,
    Date,
    DeviceId,
    Epsilon,
    Instant,
    Interval,
    Name,
    Number,
    PolicyId,
    Relation,
    Slot,
    Speed,
    When,
    text,
)

BLEND: Final = ("weight", "users", "public_epsilon")
ANSWER: Final = ("mean", "raw", "unit", "noise", "interval95", "covers")


class NoiseRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Distribution of the noise in `raw`. Public.

    `laplace`: added to the value. `laplace_ratio`: the value is a ratio of two sums, each with Laplace noise. A blend
    combines a mean with noise of `central_scale` and devices' reports, each with noise of `local_scale`.
    """

    RULES: ClassVar = (
        When("kind", ("laplace",), has=("scale",)),
        When("kind", ("laplace_blend", "gaussian_blend"), allows=("central_scale", "local_scale")),
    )

    kind: Annotated[
        Literal["laplace", "laplace_ratio", "laplace_blend", "gaussian_blend"],
        msgspec.Meta(description="distribution"),
    ]
    scale: (
        Annotated[
            float,
            msgspec.Meta(
                ge=0, description="in `unit`; 0 if no noise was needed; absent for a ratio, which has no single scale"
            ),
        ]
        | None
    ) = None
    central_scale: Annotated[float, msgspec.Meta(gt=0, description="in `unit`; absent: no such noise")] | None = None
    local_scale: Annotated[float, msgspec.Meta(gt=0, description="in `unit`; absent: no such noise")] | None = None


class UsersRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Number of users of each group in a blend; present only if counts are public."""

    central: Annotated[int, msgspec.Meta(ge=0, description="users that trust the operator")]
    local: Annotated[int, msgspec.Meta(ge=0, description="users whose devices do not trust the operator")]


class CountsRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Public counts of a HAT, from which estimates are made. Numbers with 6 digits.

    p_b: share of user b in the readings. w_b: weight of its mean in the estimator, before any clipping.
    """

    users: Annotated[int, msgspec.Meta(ge=1, description="number of users")]
    readings: Annotated[int, msgspec.Meta(ge=1, description="number of their readings")]
    squares: Annotated[float, msgspec.Meta(ge=0, le=1, description="sum of p_b^2")]
    shift: (
        Annotated[float, msgspec.Meta(ge=0, description="sum of (w_b - p_b)^2; 0 for the mean of all readings")] | None
    ) = None


class ResidualQueryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A query of a tracker: how far buses are from the prediction. docs/specification/tracker.md has the symbols."""

    number: Annotated[int, msgspec.Meta(ge=1, description="of the query on its date")]
    sum: Annotated[int, msgspec.Meta(description="Y: the released integer, with its noise")]
    clip: Annotated[float, msgspec.Meta(gt=0, description="z: clip of a residual, in its standard deviations")]
    scale: Annotated[int, msgspec.Meta(gt=0, description="D: scale of the discrete Laplace noise in `sum`")]
    steps: Annotated[int, msgspec.Meta(gt=0, description="T: steps of one unit of payment")]
    weight: Annotated[float, msgspec.Meta(gt=0, description="W: sum of payments over standard deviations")]
    kept: Annotated[float, msgspec.Meta(gt=0, le=1, description="k: what clipping leaves of a shift of all residuals")]
    members: Annotated[int, msgspec.Meta(ge=1, description="number of users that pay")]
    charges: Annotated[float, msgspec.Meta(ge=0, description="epsilon that all users pay, in sum")]
    limit: Annotated[
        float, msgspec.Meta(gt=0, description="epsilon that all queries of the date can cost a user: reserved")
    ]
    hats: Annotated[
        tuple[tuple[Slot, float, float], ...],
        msgspec.Meta(description="of each HAT: slot, weight g, and beta, the regression on its own deviation"),
    ]
    features: Annotated[
        tuple[float, float], msgspec.Meta(description="weights of the coefficients of both features of HATs")
    ]
    variance: Annotated[float, msgspec.Meta(gt=0, description="of all that the model does not have, noise included")]
    noise_variance: Annotated[float, msgspec.Meta(gt=0, description="of the noise")]


class ReleaseRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One release on `hats.means`. Records with equal `release_id` are equal byte for byte."""

    RULES: ClassVar = (
        When("status", ("released",), has=ANSWER, allows=(*BLEND, "query")),
        When("relation", ("replace",), has=("seq",), allows=("counts",)),
        When("target", allows=("device_epsilon", "delta", *BLEND)),
    )

    release_id: Annotated[
        str,
        text(
            f"^{NAME}/{DATE}T({TIME}/{CELL}|{SETTLEMENT}/[0-9]{{5}})$",
            "policy/dateTslot/cell, or policy/dateTsettlement/number of a query; also the record's key",
        ),
    ]
    policy_id: PolicyId
    status: Annotated[
        Literal["released", "suppressed", "budget_exhausted", "incomplete", "deferred"],
        msgspec.Meta(
            description="`suppressed`: too few users or, under `add_remove`, too few readings; `budget_exhausted`: the"
            " day's limit left no room; `incomplete`: records of the day were lost; `deferred`: a tracker made no"
            " query of it, so the day's end or the estimates cover it. Only `released` has a mean"
        ),
    ]
    seq: Number | None = None
    cell: Cell
    date: Date
    slot: Slot
    start: Instant
    end: Instant
    mean: Annotated[float, msgspec.Meta(ge=0, description="`raw` clipped to [0, upper bound]")] | None = None
    raw: Annotated[float, msgspec.Meta(description="the noisy value, a multiple of the policy's grid")] | None = None
    unit: Annotated[Literal["km/h"], msgspec.Meta(description="unit of all values")] | None = None
    noise: NoiseRecord | None = None
    interval95: Interval | None = None
    covers: (
        Annotated[
            Literal["noise"], msgspec.Meta(description="what interval95 covers: noise only, not clipping or sampling")
        ]
        | None
    ) = None
    counts: (
        Annotated[
            CountsRecord,
            msgspec.Meta(description="counts of the HAT; not under `add_remove`, and not of blends"),
        ]
        | None
    ) = None
    weight: (
        Annotated[
            float,
            msgspec.Meta(
                ge=0, le=1, description="weight of the central users' mean in a blend; the rest is that of the reports"
            ),
        ]
        | None
    ) = None
    users: UsersRecord | None = None
    query: Annotated[ResidualQueryRecord, msgspec.Meta(description="of a tracker")] | None = None
    public_epsilon: (
        Annotated[
            float,
            msgspec.Meta(
                ge=0, description="epsilon of a blend against an observer who sees only the published records"
            ),
        ]
        | None
    ) = None
    estimator: Annotated[
        str, msgspec.Meta(min_length=1, description="name in the policy; see docs/estimators.md, docs/hybrid.md")
    ]
    epsilon: Annotated[
        Epsilon,
        msgspec.Meta(
            description="the policy's epsilon: cost of a release for a user that trusts the operator; of a tracker: the"
            " largest charge of a user"
        ),
    ]
    target: (
        Annotated[
            Literal["user_mean"],
            msgspec.Meta(description="present if the policy has devices: the mean of the users' means"),
        ]
        | None
    ) = None
    device_epsilon: Annotated[float, msgspec.Meta(gt=0, description="epsilon of each device's own noise")] | None = None
    delta: (
        Annotated[
            float,
            msgspec.Meta(gt=0, lt=1, description="delta of Gaussian noise: every epsilon of this record holds with it"),
        ]
        | None
    ) = None
    relation: Relation
    released_at: Instant


class NormalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A mean speed as a normal distribution, with 2 digits."""

    value: Annotated[float, msgspec.Meta(ge=0, description="in `unit`, clipped to [0, upper bound]")]
    sd: Annotated[float, msgspec.Meta(ge=0, description="standard deviation, in `unit`")]
    interval95: Annotated[
        tuple[Speed, Speed], msgspec.Meta(description="95 % of the distribution, clipped to [0, upper bound]")
    ]


class EstimateRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One estimate on `hats.estimates`: what all releases up to its slot say of a cell.

    Post-processing of `hats.means`, so it costs nothing. A later record of a key replaces an earlier one.
    """

    RULES: ClassVar = (When("stage", ("live", "settled"), has=("mean",), allows=("residual_z",)),)

    estimate_id: Annotated[str, text(f"^{NAME}/{DATE}T{TIME}/{CELL}$", "policy/dateTslot/cell; also the record's key")]
    policy_id: PolicyId
    stage: Annotated[
        Literal["live", "settled", "predicted"],
        msgspec.Meta(
            description="`live`: at the close of the slot, with a release of the cell; `predicted`: without one;"
            " `settled`: `live` again after the last slot of the date"
        ),
    ]
    cell: Cell
    date: Date
    slot: Slot
    start: Instant
    end: Instant
    unit: Annotated[Literal["km/h"], msgspec.Meta(description="unit of all values")]
    road: Annotated[
        NormalRecord, msgspec.Meta(description="mean speed in this cell and slot, without the sampling of its users")
    ]
    mean: Annotated[NormalRecord, msgspec.Meta(description="mean of all readings of the HAT")] | None = None
    residual_z: (
        Annotated[
            float,
            msgspec.Meta(
                description="difference of the release from what was expected of it, in standard deviations; absent if"
                " the release has no noise"
            ),
        ]
        | None
    ) = None


class QueryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer on `hats.queries`: a query over one cell and slot on the local dates of one period.

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
        str, text(f"^{NAME}/{DATE}T{TIME}/{CELL}/{NAME}$", "policy/dateTslot/cell/query; also the record's key")
    ]
    policy_id: PolicyId
    status: Annotated[
        Literal["released", "suppressed", "budget_exhausted"],
        msgspec.Meta(description="`suppressed`: see `reason`; `budget_exhausted`: a day's limit left no room"),
    ]
    seq: Number | None = None
    query: Annotated[Name, msgspec.Meta(description="name in the policy")]
    kind: Annotated[
        Literal["mean_speed", "over_speed_limit"],
        msgspec.Meta(description="mean of the vehicles' daily means, or number of vehicles a day above `speed_limit`"),
    ]
    cell: Cell
    date: Annotated[Date, msgspec.Meta(description="last date with this slot; the query is answered after it")]
    slot: Slot
    start: Instant
    end: Instant
    first_date: Annotated[Date, msgspec.Meta(description="first local date of the period")]
    last_date: Annotated[Date, msgspec.Meta(description="last local date of the period, included")]
    days: Annotated[int, msgspec.Meta(ge=1, description="number of dates in the period")]
    days_used: Annotated[int, msgspec.Meta(ge=0, description="number of dates with data")]
    speed_limit: Annotated[float, msgspec.Meta(ge=0, description="km/h; of over_speed_limit")] | None = None
    missing: Annotated[tuple[Date, ...], msgspec.Meta(description="dates without data")] = ()
    reason: (
        Annotated[Literal["too_few_user_days", "missing_days"], msgspec.Meta(description="why the query is suppressed")]
        | None
    ) = None
    user_days: Annotated[int, msgspec.Meta(ge=0, description="N; present only if counts are public")] | None = None
    mean: Annotated[float, msgspec.Meta(ge=0, description="`raw` clipped to the possible values")] | None = None
    raw: Annotated[float, msgspec.Meta(description="the noisy value, a multiple of the policy's grid")] | None = None
    unit: Annotated[Literal["km/h", "vehicles/day"], msgspec.Meta(description="unit of all values")] | None = None
    noise: NoiseRecord | None = None
    interval95: Interval | None = None
    covers: Annotated[Literal["noise"], msgspec.Meta(description="what interval95 covers")] | None = None
    epsilon: Annotated[Epsilon, msgspec.Meta(description="cost of this answer on each of its days")]
    epsilon_user_day: Annotated[
        float, msgspec.Meta(ge=0, description="cost of all answers of the query for a user on each of its days")
    ]
    most_hats: Annotated[
        int, msgspec.Meta(ge=1, description="most HATs that a user's day can enter, so most answers that read it")
    ]
    relation: Relation
    released_at: Instant


class ReservedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Budget reserved for a query on one of its days: `epsilon` in each of `places`; 0 if the limit left no room."""

    query: Annotated[str, msgspec.Meta(description="name; `cells`: the cost of the private selection of cells")]
    epsilon: Epsilon
    places: Annotated[int, msgspec.Meta(ge=0, description="most HATs that a user's day can enter")]


class EpsilonDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Privacy loss of the day as (epsilon, delta)."""

    epsilon: Epsilon
    delta: Annotated[float, msgspec.Meta(gt=0, lt=1, description="the policy's delta")]


class SpentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Charges of the users of a date by a tracker so far: functions of counts."""

    largest: Annotated[Epsilon, msgspec.Meta(description="of one user")]
    mean: Annotated[Epsilon, msgspec.Meta(description="over the users in HATs with enough users")]


class BudgetRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ledger of one day on `hats.budget`, keyed by `policy/date`. The record with the greatest `seq` is valid."""

    RULES: ClassVar = (When("replaces", has=("from",)), When("total", has=("total_limit",)))

    policy: Annotated[Name, msgspec.Meta(description="policy name")]
    policy_id: PolicyId
    date: Date
    seq: Annotated[int, msgspec.Meta(ge=0, description="number of changes to the day's ledger")]
    releases: Annotated[int, msgspec.Meta(ge=0, description="number of charged releases of this policy")]
    epsilon_sum: Annotated[Epsilon, msgspec.Meta(description="sum over the releases of this policy")]
    epsilon_user_day: Annotated[
        float, msgspec.Meta(ge=0, description="largest cost of one user's day so far, over all policies")
    ]
    limit: Annotated[float, msgspec.Meta(ge=0, description="smallest daily limit of the policies that charged the day")]
    day_bound: Annotated[float, msgspec.Meta(ge=0, description="largest possible cost of the whole day")]
    epsilon_delta: EpsilonDelta
    max_hats_per_day: Annotated[int, msgspec.Meta(ge=1, description="K of this policy")] | None = None
    queries: Annotated[
        tuple[ReservedRecord, ...], msgspec.Meta(description="reserved for queries over several days")
    ] = ()
    spent: Annotated[SpentRecord, msgspec.Meta(description="of a tracker's users; not in every record")] | None = None
    replaces: Annotated[Name, msgspec.Meta(description="previous policy")] | None = None
    from_date: (
        Annotated[Date, msgspec.Meta(description="first local date of this policy, if it replaces another")] | None
    ) = msgspec.field(default=None, name="from")
    total: (
        Annotated[float, msgspec.Meta(ge=0, description="unit `user`: cost of all days for one user so far")] | None
    ) = None
    total_limit: Annotated[float, msgspec.Meta(ge=0, description="unit `user`: limit of all days")] | None = None


class TelemetryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One reading on the telemetry topic. The key is the vehicle's id; an empty value is a heartbeat record.

    This is the canonical format, which hatcast's own sources send; docs/feeds.md lists the other formats.
    """

    vehicle: Annotated[str, msgspec.Meta(min_length=1, description="at most 128 bytes of UTF-8")]
    time: Annotated[str | int | float, msgspec.Meta(description="ISO 8601 with an offset, or epoch milliseconds")]
    lat: Annotated[float, msgspec.Meta(ge=-90, le=90, description="degrees north, WGS 84")]
    lon: Annotated[float, msgspec.Meta(ge=-180, le=180, description="degrees east, WGS 84")]
    speed: Annotated[float, msgspec.Meta(description="in `unit`")]
    unit: Annotated[Literal["km/h", "m/s", "mph", "kn"], msgspec.Meta(description="unit of `speed`")] = "km/h"


class ReportRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One report on the topic `reports`: a device's mean in one HAT, with noise that the device added."""

    id: DeviceId
    policy_id: PolicyId
    cell: Cell
    date: Date
    slot: Slot
    value: Annotated[float, msgspec.Meta(description="km/h, a multiple of the policy's grid; may be below 0")]
    epsilon: Annotated[float, msgspec.Meta(gt=0, description="of the noise in `value`: the policy's local_epsilon")]


RELEASE: Final = msgspec.json.Decoder(ReleaseRecord)
QUERY: Final = msgspec.json.Decoder(QueryRecord)
ESTIMATE: Final = msgspec.json.Decoder(EstimateRecord)
BUDGET: Final = msgspec.json.Decoder(BudgetRecord)
