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
    about,
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
        about("`suppressed`: see `reason`; `budget_exhausted`: a day's limit left no room"),
    ]
    seq: Number | None = None
    query: Annotated[Name, about("name in the policy")]
    kind: Annotated[
        Literal["mean_speed", "over_speed_limit", "mean_value", "over_threshold"],
        about("mean of the vehicles' daily means, or number of vehicles a day above `speed_limit` or `threshold`"),
    ]
    cell: Cell
    remainder: Remainder | None = None
    date: Annotated[Date, about("last date with this slot; the query is answered after it")]
    slot: Slot
    start: Instant
    end: Instant
    first_date: Annotated[Date, about("first local date of the period")]
    last_date: Annotated[Date, about("last local date of the period, included")]
    days: Annotated[int, about("number of dates in the period", ge=1)]
    days_used: Annotated[int, about("number of dates with data", ge=0)]
    value: ValueName | None = None
    speed: Speed | None = None
    speed_limit: Annotated[float, about("km/h; of over_speed_limit, if known", ge=0)] | None = None
    threshold: Annotated[float, about("in the value's unit; of over_threshold, if known")] | None = None
    missing: Annotated[tuple[Date, ...], about("dates without data")] = ()
    reason: (
        Annotated[Literal["too_few_user_days", "missing_days", "not_requested"], about("why the query is suppressed")]
        | None
    ) = None
    user_days: Annotated[int, about("N; present only if counts are public", ge=0)] | None = None
    mean: Annotated[float, about("`raw` clipped to the possible values")] | None = None
    raw: Annotated[float, about("the noisy value, a multiple of the policy's grid")] | None = None
    unit: (
        Annotated[
            str,
            about(
                "unit of all values: `vehicles/day` of a number of vehicles, else that of readings",
                min_length=1,
                max_length=16,
            ),
        ]
        | None
    ) = None
    noise: NoiseRecord | None = None
    interval95: Interval | None = None
    covers: Annotated[Literal["noise"], about("what interval95 covers")] | None = None
    epsilon: Annotated[Epsilon, about("cost of this answer on each of its days")]
    epsilon_user_day: Annotated[float, about("cost of all answers of the query for a user on each of its days", ge=0)]
    most_hats: Annotated[int, about("most HATs that a user's day can enter, so most answers that read it", ge=1)]
    relation: Relation
    released_at: Instant


QUERY: Final = msgspec.json.Decoder(QueryRecord)


class ReservedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Budget reserved for a query on one of its days: `epsilon` in each of `places`; 0 if the limit left no room."""

    query: Annotated[str, about("name; `cells`: the cost of the private selection of cells")]
    epsilon: Epsilon
    places: Annotated[int, about("most HATs that a user's day can enter", ge=0)]


class EpsilonDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Privacy loss of the day as (epsilon, delta)."""

    epsilon: Epsilon
    delta: Annotated[float, about("the policy's delta", gt=0, lt=1)]


class SpentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Charges of the users of a date by a tracker so far: functions of counts."""

    largest: Annotated[Epsilon, about("of one user")]
    mean: Annotated[Epsilon, about("over the users in HATs with enough users")]


class BudgetRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ledger of one day on `hats.budget`, keyed by `policy/date`. The record with the greatest `seq` is valid."""

    RULES: ClassVar = (When("replaces", has=("from",)), When("total", has=("total_limit",)))

    policy: Annotated[Name, about("policy name")]
    policy_id: PolicyId
    date: Date
    seq: Annotated[int, about("number of changes to the day's ledger", ge=0)]
    releases: Annotated[int, about("number of charged releases of this policy", ge=0)]
    epsilon_sum: Annotated[Epsilon, about("sum over the releases of this policy")]
    epsilon_user_day: Annotated[float, about("largest cost of one user's day so far, over all policies", ge=0)]
    limit: Annotated[float, about("smallest daily limit of the policies that charged the day", ge=0)]
    day_bound: Annotated[float, about("largest possible cost of the whole day", ge=0)]
    epsilon_delta: EpsilonDelta
    max_hats_per_day: Annotated[int, about("K of this policy", ge=1)] | None = None
    queries: Annotated[tuple[ReservedRecord, ...], about("reserved for queries over several days")] = ()
    spent: Annotated[SpentRecord, about("of a tracker's users; not in every record")] | None = None
    replaces: Annotated[Name, about("previous policy")] | None = None
    from_date: Annotated[Date, about("first local date of this policy, if it replaces another")] | None = msgspec.field(
        default=None, name="from"
    )
    total: Annotated[float, about("unit `user`: cost of all days for one user so far", ge=0)] | None = None
    total_limit: Annotated[float, about("unit `user`: limit of all days", ge=0)] | None = None

    @property
    def largest(self) -> float:
        """The most epsilon that one user's day has spent, without a tracker's reservations."""
        return self.epsilon_user_day if self.spent is None else self.spent.largest


BUDGET: Final = msgspec.json.Decoder(BudgetRecord)
