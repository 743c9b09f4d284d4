"""Answers to queries over days: the records of `hats.queries`."""

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
