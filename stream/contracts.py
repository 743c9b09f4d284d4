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


RELEASE: Final = msgspec.json.Decoder(ReleaseRecord)
BUDGET: Final = msgspec.json.Decoder(BudgetRecord)
