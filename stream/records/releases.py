"""Releases: the records of `hats.means`."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from hatcast.stream.records.fields import (
    ANSWER,
    CELL,
    DATE,
    NAME,
    PULSE,
    SETTLEMENT,
    TIME,
    AnyStatus,
    Cell,
    Date,
    Epsilon,
    Instant,
    Interval,
    NoiseRecord,
    Number,
    PolicyId,
    Relation,
    Remainder,
    Slot,
    Speed,
    Unit,
    ValueName,
    When,
    about,
    text,
)

BLEND: Final = ("weight", "users", "public_epsilon", "groups")


class ResidualQueryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query of a tracker: how far buses are from the prediction. docs/specification/tracker.md has the symbols."""

    number: Annotated[int, about("of the query on its date", ge=1)]
    sum: Annotated[int, about("Y: the released integer, with its noise")]
    clip: Annotated[float, about("z: clip of a residual, in its standard deviations", gt=0)]
    scale: Annotated[int, about("D: scale of the discrete Laplace noise in `sum`", gt=0)]
    steps: Annotated[int, about("T: steps of one unit of payment", gt=0)]
    weight: Annotated[float, about("W: sum of payments over standard deviations", gt=0)]
    kept: Annotated[float, about("k: what clipping leaves of a shift of all residuals", gt=0, le=1)]
    members: Annotated[int, about("number of users that pay", ge=1)]
    charges: Annotated[float, about("epsilon that all users pay, in sum", ge=0)]
    limit: Annotated[float, about("epsilon that all queries of the date can cost a user: reserved", gt=0)]
    hats: Annotated[
        tuple[tuple[Slot, float, float], ...],
        about("of each HAT: slot, weight g, and beta, the regression on its own deviation"),
    ]
    cells: Annotated[tuple[Cell, ...], about("of each of `hats`; absent: all are of the record's `cell`")] | None = None
    variance: Annotated[float, about("of all that the model does not have, noise included", gt=0)]
    noise_variance: Annotated[float, about("of the noise", gt=0)]


class ContinualSumRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The noisy sum of all values since the horizon's start. A value is the mean of one user in one slot."""

    value: Annotated[float, about("in `unit`, with 3 digits")]
    sd: Annotated[float, about("standard deviation of its noise, in `unit`", ge=0)]
    interval95: Annotated[tuple[float, float], about("around `value`, in `unit`: 95 % of the noise is within")]


class ContinualRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A running sum since the horizon's start. The release's mean is this sum divided by the number of its values.

    The release's `start` is that of the horizon, and its `end` that of the slot: it is not the mean of one slot.
    """

    RULES: ClassVar = (When("sum", needs=("count",)),)

    horizon: Annotated[Date, about("first local date of the horizon, which also names it")]
    last_date: Annotated[Date, about("last local date of the horizon")]
    index: Annotated[int, about("number of this slot in the horizon, from 0", ge=0)]
    slots: Annotated[int, about("slots of the horizon", ge=1)]
    kind: Annotated[
        Literal["laplace", "gaussian", "tree", "kary", "toeplitz", "blt", "withhold_release"],
        about("mechanism; see docs/specification/continual.md"),
    ]
    max_cells: Annotated[
        int, about("most cells that a user enters: the horizon costs it `max_cells` x `epsilon`", ge=1)
    ]
    delta: Annotated[float, about("delta of Gaussian noise, of the cell's whole horizon", gt=0, lt=1)] | None = None
    count: (
        Annotated[int, about("values in the sum, one of each user and slot; absent if the sum is lost", ge=0)] | None
    ) = None
    sum: Annotated[ContinualSumRecord, about("only of a `released` record")] | None = None


class UsersRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Number of users of each group in a blend; present only if counts are public."""

    central: Annotated[int, about("users that trust the operator", ge=0)]
    local: Annotated[int, about("users whose devices do not trust the operator", ge=0)]


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Mean of one group's users. Its fields are those of a release of the group alone."""

    mean: Annotated[float, about("`raw` clipped to the value's range")]
    raw: Annotated[float, about("the noisy value, a multiple of the policy's grid")]
    noise: NoiseRecord
    interval95: Interval
    users: Annotated[int, about("number of users", ge=1)]
    epsilon: Annotated[Epsilon, about("cost of this mean for a user of the group")]
    public_epsilon: Annotated[float, about("the same against an observer who sees only the published records", ge=0)]


class GroupsRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Each group's own mean, of a policy with `groups = "separate"`. A group without users is absent."""

    central: Annotated[GroupRecord, about("users that trust the operator")] | None = None
    local: Annotated[GroupRecord, about("users whose devices do not")] | None = None


class CountsRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Public counts of a HAT, from which estimates are made. Numbers with 6 digits.

    p_b: share of user b in the readings. w_b: weight of its mean in the estimator, before any clipping.
    """

    users: Annotated[int, about("number of users", ge=1)]
    readings: Annotated[int, about("number of their readings", ge=1)]
    squares: Annotated[float, about("sum of p_b^2", ge=0, le=1)]
    shift: Annotated[float, about("sum of (w_b - p_b)^2; 0 for the mean of all readings", ge=0)] | None = None


class ValueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One of several values that a HAT was released with, in its own unit. Numbers have the digits of its grid."""

    name: Annotated[str, text("^[a-z][a-z0-9_]{0,39}$", "as in `[policy] values`")]
    mean: Annotated[float, about("`raw` clipped to the value's range")]
    raw: Annotated[float, about("the noisy value, a multiple of the value's grid")]
    unit: Annotated[str, about("unit of all numbers of this value", min_length=1, max_length=16)]
    noise: NoiseRecord
    interval95: Annotated[
        tuple[float, float], about("around `mean`, clipped like it: 95 % of this value's noise is within")
    ]


class ReleaseRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One release on `hats.means`. Records with equal `release_id` are equal byte for byte."""

    RULES: ClassVar = (
        When("status", ("released",), has=ANSWER, allows=(*BLEND, "query", "values")),
        When("relation", ("replace",), has=("seq",), allows=("counts", "scheduled", "prior_scale")),
        When("target", allows=("device_epsilon", "delta", *BLEND)),
    )

    release_id: Annotated[
        str,
        text(
            f"^{NAME}/{DATE}T({TIME}/{CELL}|({SETTLEMENT}|{PULSE})/[0-9]{{5}})$",
            "policy/dateTslot/cell, or policy/dateTsettlement/number or dateTpulse/number of a query; also the record's"
            " key",
        ),
    ]
    policy_id: PolicyId
    status: Annotated[
        AnyStatus,
        about(
            "`suppressed`: too few users or, under `add_remove`, too few readings; `budget_exhausted`: the"
            " day's limit left no room; `incomplete`: records of the day were lost; `deferred`: a tracker made no"
            " query of it, so the day's end or the estimates cover it. Only `released` has a mean"
        ),
    ]
    seq: Number | None = None
    cell: Cell
    remainder: Remainder | None = None
    date: Date
    slot: Slot
    start: Instant
    end: Instant
    value: ValueName | None = None
    speed: Speed | None = None
    mean: Annotated[float, about("`raw` clipped to the value's range")] | None = None
    raw: Annotated[float, about("the noisy value, a multiple of the policy's grid")] | None = None
    unit: Unit | None = None
    noise: NoiseRecord | None = None
    interval95: Interval | None = None
    covers: (
        Annotated[Literal["noise"], about("what interval95 covers: noise only, not clipping or sampling")] | None
    ) = None
    values: (
        Annotated[
            tuple[ValueRecord, ...],
            about(
                "of a policy with several values: each of them, the speed first. `mean`, `raw`, `unit`,"
                " `noise` and `interval95` of the record are those of the speed. All values cost `epsilon` together",
                min_length=2,
            ),
        ]
        | None
    ) = None
    counts: Annotated[CountsRecord, about("counts of the HAT; not under `add_remove`, and not of blends")] | None = None
    scheduled: (
        Annotated[
            float,
            about(
                "of a tracker with a timetable: the cell's scheduled speed on this date, in km/h with 1"
                " digit; absent if it has none. Not private",
                gt=0,
            ),
        ]
        | None
    ) = None
    prior_scale: (
        Annotated[
            int,
            about(
                "of a tracker of another value than speeds: standard deviations of its model are 2^(n/4)"
                " times those of the value's range on this date",
                ge=-32,
                le=4,
            ),
        ]
        | None
    ) = None
    weight: (
        Annotated[
            float, about("weight of the central users' mean in a blend; the rest is that of the reports", ge=0, le=1)
        ]
        | None
    ) = None
    users: UsersRecord | None = None
    query: Annotated[ResidualQueryRecord, about("of a tracker")] | None = None
    running: (
        Annotated[
            ContinualRecord,
            about(
                "of a policy with `[policy.continual]`: all values of the record are of the time since the"
                " horizon's start, not of one slot"
            ),
        ]
        | None
    ) = None
    public_epsilon: (
        Annotated[float, about("epsilon of a blend against an observer who sees only the published records", ge=0)]
        | None
    ) = None
    groups: (
        Annotated[
            GroupsRecord, about('with `groups = "separate"`, unless a group has users but fewer than `min_users`')
        ]
        | None
    ) = None
    estimator: Annotated[str, about("name in the policy; see docs/estimators.md, docs/hybrid.md", min_length=1)]
    epsilon: Annotated[
        Epsilon,
        about(
            "the policy's epsilon: cost of a release for a user that trusts the operator; of a tracker: the"
            " largest charge of a user; of a running sum: cost of the cell's whole horizon"
        ),
    ]
    target: (
        Annotated[Literal["user_mean"], about("present if the policy has devices: the mean of the users' means")] | None
    ) = None
    device_epsilon: Annotated[float, about("epsilon of each device's own noise", gt=0)] | None = None
    delta: (
        Annotated[float, about("delta of Gaussian noise: every epsilon of this record holds with it", gt=0, lt=1)]
        | None
    ) = None
    relation: Relation
    released_at: Instant

    @property
    def is_released(self) -> bool:
        """Whether it has a mean."""
        return self.status == "released"


RELEASE: Final = msgspec.json.Decoder(ReleaseRecord)
