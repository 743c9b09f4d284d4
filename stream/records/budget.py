"""Ledgers of days: the records of `hats.budget`."""

from typing import Annotated, ClassVar, Final

import msgspec

from hatcast.stream.records.fields import Date, Epsilon, Name, PolicyId, When


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
