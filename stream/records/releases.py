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
    text,
)

BLEND: Final = ("weight", "users", "public_epsilon", "groups")


class ResidualQueryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    cells: (
        Annotated[
            tuple[Cell, ...], msgspec.Meta(description="of each of `hats`; absent: all are of the record's `cell`")
        ]
        | None
    ) = None
    variance: Annotated[float, msgspec.Meta(gt=0, description="of all that the model does not have, noise included")]
    noise_variance: Annotated[float, msgspec.Meta(gt=0, description="of the noise")]


class ContinualSumRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The noisy sum of all values since the horizon's start. A value is the mean of one user in one slot."""

    value: Annotated[float, msgspec.Meta(description="in `unit`, with 3 digits")]
    sd: Annotated[float, msgspec.Meta(ge=0, description="standard deviation of its noise, in `unit`")]
    interval95: Annotated[
        tuple[float, float], msgspec.Meta(description="around `value`, in `unit`: 95 % of the noise is within")
    ]


class ContinualRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A running sum since the horizon's start. The release's mean is this sum divided by the number of its values.

    The release's `start` is that of the horizon, and its `end` that of the slot: it is not the mean of one slot.
    """

    RULES: ClassVar = (When("sum", needs=("count",)),)

    horizon: Annotated[Date, msgspec.Meta(description="first local date of the horizon, which also names it")]
    last_date: Annotated[Date, msgspec.Meta(description="last local date of the horizon")]
    index: Annotated[int, msgspec.Meta(ge=0, description="number of this slot in the horizon, from 0")]
    slots: Annotated[int, msgspec.Meta(ge=1, description="slots of the horizon")]
    kind: Annotated[
        Literal["laplace", "gaussian", "tree", "kary", "toeplitz", "blt", "withhold_release"],
        msgspec.Meta(description="mechanism; see docs/specification/continual.md"),
    ]
    max_cells: Annotated[
        int,
        msgspec.Meta(ge=1, description="most cells that a user enters: the horizon costs it `max_cells` x `epsilon`"),
    ]
    delta: (
        Annotated[float, msgspec.Meta(gt=0, lt=1, description="delta of Gaussian noise, of the cell's whole horizon")]
        | None
    ) = None
    count: (
        Annotated[
            int,
            msgspec.Meta(ge=0, description="values in the sum, one of each user and slot; absent if the sum is lost"),
        ]
        | None
    ) = None
    sum: Annotated[ContinualSumRecord, msgspec.Meta(description="only of a `released` record")] | None = None


class UsersRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Number of users of each group in a blend; present only if counts are public."""

    central: Annotated[int, msgspec.Meta(ge=0, description="users that trust the operator")]
    local: Annotated[int, msgspec.Meta(ge=0, description="users whose devices do not trust the operator")]


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Mean of one group's users. Its fields are those of a release of the group alone."""

    mean: Annotated[float, msgspec.Meta(description="`raw` clipped to the value's range")]
    raw: Annotated[float, msgspec.Meta(description="the noisy value, a multiple of the policy's grid")]
    noise: NoiseRecord
    interval95: Interval
    users: Annotated[int, msgspec.Meta(ge=1, description="number of users")]
    epsilon: Annotated[Epsilon, msgspec.Meta(description="cost of this mean for a user of the group")]
    public_epsilon: Annotated[
        float, msgspec.Meta(ge=0, description="the same against an observer who sees only the published records")
    ]


class GroupsRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Each group's own mean, of a policy with `groups = "separate"`. A group without users is absent."""

    central: Annotated[GroupRecord, msgspec.Meta(description="users that trust the operator")] | None = None
    local: Annotated[GroupRecord, msgspec.Meta(description="users whose devices do not")] | None = None


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


class ValueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One of several values that a HAT was released with, in its own unit. Numbers have the digits of its grid."""

    name: Annotated[str, text("^[a-z][a-z0-9_]{0,39}$", "as in `[policy] values`")]
    mean: Annotated[float, msgspec.Meta(description="`raw` clipped to the value's range")]
    raw: Annotated[float, msgspec.Meta(description="the noisy value, a multiple of the value's grid")]
    unit: Annotated[str, msgspec.Meta(min_length=1, max_length=16, description="unit of all numbers of this value")]
    noise: NoiseRecord
    interval95: Annotated[
        tuple[float, float],
        msgspec.Meta(description="around `mean`, clipped like it: 95 % of this value's noise is within"),
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
        msgspec.Meta(
            description="`suppressed`: too few users or, under `add_remove`, too few readings; `budget_exhausted`: the"
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
    mean: Annotated[float, msgspec.Meta(description="`raw` clipped to the value's range")] | None = None
    raw: Annotated[float, msgspec.Meta(description="the noisy value, a multiple of the policy's grid")] | None = None
    unit: Unit | None = None
    noise: NoiseRecord | None = None
    interval95: Interval | None = None
    covers: (
        Annotated[
            Literal["noise"], msgspec.Meta(description="what interval95 covers: noise only, not clipping or sampling")
        ]
        | None
    ) = None
    values: (
        Annotated[
            tuple[ValueRecord, ...],
            msgspec.Meta(
                min_length=2,
                description="of a policy with several values: each of them, the speed first. `mean`, `raw`, `unit`,"
                " `noise` and `interval95` of the record are those of the speed. All values cost `epsilon` together",
            ),
        ]
        | None
    ) = None
    counts: (
        Annotated[
            CountsRecord, msgspec.Meta(description="counts of the HAT; not under `add_remove`, and not of blends")
        ]
        | None
    ) = None
    scheduled: (
        Annotated[
            float,
            msgspec.Meta(
                gt=0,
                description="of a tracker with a timetable: the cell's scheduled speed on this date, in km/h with 1"
                " digit; absent if it has none. Not private",
            ),
        ]
        | None
    ) = None
    prior_scale: (
        Annotated[
            int,
            msgspec.Meta(
                ge=-32,
                le=4,
                description="of a tracker of another value than speeds: standard deviations of its model are 2^(n/4)"
                " times those of the value's range on this date",
            ),
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
    running: (
        Annotated[
            ContinualRecord,
            msgspec.Meta(
                description="of a policy with `[policy.continual]`: all values of the record are of the time since the"
                " horizon's start, not of one slot"
            ),
        ]
        | None
    ) = None
    public_epsilon: (
        Annotated[
            float,
            msgspec.Meta(
                ge=0, description="epsilon of a blend against an observer who sees only the published records"
            ),
        ]
        | None
    ) = None
    groups: (
        Annotated[
            GroupsRecord,
            msgspec.Meta(description='with `groups = "separate"`, unless a group has users but fewer than `min_users`'),
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
            " largest charge of a user; of a running sum: cost of the cell's whole horizon"
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

    @property
    def is_released(self) -> bool:
        """Whether it has a mean."""
        return self.status == "released"


RELEASE: Final = msgspec.json.Decoder(ReleaseRecord)
