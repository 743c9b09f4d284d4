"""Records about days: answers to queries over them, and the ledgers of `hats.budget`."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from hatcast.stream.records.fields import (
    ANSWER,
    CELL,
    DATE,
    NAME,
    TIME,
    Cell,
    Date,
    Epsilon,
    Instant,
    Interval,
    Name,
    NoiseRecord,
    Number,
    PolicyId,
    Relation,
    Remainder,
    Slot,
    Speed,
    ValueName,
    When,
    text,
)


class QueryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer on `hats.queries`: a query over one cell and slot on the local dates of one period.

    Records with equal `release_id` are equal byte for byte.
    """

    RULES: ClassVar = (
        When("status", ("released",), has=ANSWER),
        When("status", ("suppressed",), has=("reason",)),
        When("status", ("released", "suppressed"), allows=("missing", "user_days")),
        When("relation", ("replace",), has=("seq",), allows=("user_days",)),
        When("kind", ("over_speed_limit",), allows=("speed_limit",)),
        When("kind", ("over_threshold",), allows=("threshold",)),
        When("kind", ("mean_value", "over_threshold"), has=("value",)),
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
        Literal["mean_speed", "over_speed_limit", "mean_value", "over_threshold"],
        msgspec.Meta(
            description="mean of the vehicles' daily means, or number of vehicles a day above `speed_limit` or"
            " `threshold`"
        ),
    ]
    cell: Cell
    remainder: Remainder | None = None
    date: Annotated[Date, msgspec.Meta(description="last date with this slot; the query is answered after it")]
    slot: Slot
    start: Instant
    end: Instant
    first_date: Annotated[Date, msgspec.Meta(description="first local date of the period")]
    last_date: Annotated[Date, msgspec.Meta(description="last local date of the period, included")]
    days: Annotated[int, msgspec.Meta(ge=1, description="number of dates in the period")]
    days_used: Annotated[int, msgspec.Meta(ge=0, description="number of dates with data")]
    value: ValueName | None = None
    speed: Speed | None = None
    speed_limit: Annotated[float, msgspec.Meta(ge=0, description="km/h; of over_speed_limit, if known")] | None = None
    threshold: Annotated[float, msgspec.Meta(description="in the value's unit; of over_threshold, if known")] | None = (
        None
    )
    missing: Annotated[tuple[Date, ...], msgspec.Meta(description="dates without data")] = ()
    reason: (
        Annotated[
            Literal["too_few_user_days", "missing_days", "not_requested"],
            msgspec.Meta(description="why the query is suppressed"),
        ]
        | None
    ) = None
    user_days: Annotated[int, msgspec.Meta(ge=0, description="N; present only if counts are public")] | None = None
    mean: Annotated[float, msgspec.Meta(description="`raw` clipped to the possible values")] | None = None
    raw: Annotated[float, msgspec.Meta(description="the noisy value, a multiple of the policy's grid")] | None = None
    unit: (
        Annotated[
            str,
            msgspec.Meta(
                min_length=1,
                max_length=16,
                description="unit of all values: `vehicles/day` of a number of vehicles, else that of readings",
            ),
        ]
        | None
    ) = None
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


QUERY: Final = msgspec.json.Decoder(QueryRecord)


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

    @property
    def largest(self) -> float:
        """The most epsilon that one user's day has spent, without a tracker's reservations."""
        return self.epsilon_user_day if self.spent is None else self.spent.largest


BUDGET: Final = msgspec.json.Decoder(BudgetRecord)
