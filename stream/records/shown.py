"""A projection of what terminals show of releases, answers, estimates and running means."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import msgspec

from hatcast.stream.records.days import QueryRecord
from hatcast.stream.records.estimates import EstimateRecord, RunningRecord
from hatcast.stream.records.fields import policy_of, quantity_of, query_kind
from hatcast.stream.records.projections import Projection
from hatcast.stream.records.releases import ReleaseRecord


class ShownNormal(msgspec.Struct, frozen=True):
    """A mean of an estimate, or a running mean. Numbers keep their digits."""

    value: Decimal
    interval95: tuple[Decimal, Decimal]


class ShownGroup(msgspec.Struct, frozen=True):
    """Mean of one group of a hybrid policy. Numbers keep their digits."""

    mean: Decimal
    interval95: tuple[Decimal, Decimal]
    users: int


class ShownValue(msgspec.Struct, frozen=True):
    """One of several values of a release. Numbers keep their digits."""

    name: str
    unit: str
    mean: Decimal
    interval95: tuple[Decimal, Decimal]


class ShownUsers(msgspec.Struct, frozen=True):
    """Number of users of each group in a blend."""

    central: int
    local: int


class ShownHorizon(msgspec.Struct, frozen=True):
    """A running sum: the first local date of its horizon."""

    horizon: str


class Shown(Projection, frozen=True):
    """Fields of a record that terminals show. Its values are absent unless it is `released`. Numbers keep their digits.

    A `query` that is a text, and the fields after it, belong to the answer to a query over days: its first and last
    date, its number of dates, how many of them it used, its limit, and why it is suppressed. `value` is the name of a
    value other than the speed, `speed` says which speed it is. `stage`, `road` and `alarm` belong to an estimate;
    `running_id`, its `name` and its number of `slots` to a running mean, `running` to a running sum of
    `[policy.continual]`. `users` and `weight` belong to a blend of a hybrid policy, `groups` to one that publishes each
    group's own mean.
    """

    OF = (ReleaseRecord, QueryRecord, EstimateRecord, RunningRecord)

    cell: str
    date: str
    slot: str
    end: str
    release_id: str = ""
    estimate_id: str = ""
    running_id: str = ""
    name: str = ""
    slots: int = 0
    status: str = ""
    mean: Decimal | ShownNormal | None = None
    unit: str = ""
    interval95: tuple[Decimal, Decimal] | None = None
    values: tuple[ShownValue, ...] = ()
    query: str | dict[str, object] = ""
    first_date: str = ""
    last_date: str = ""
    days: int = 1
    days_used: int = 1
    speed_limit: Decimal | None = None
    threshold: Decimal | None = None
    value: str = ""
    speed: str | None = None
    reason: str = ""
    stage: str = ""
    road: ShownNormal | None = None
    alarm: str = ""
    groups: Mapping[str, ShownGroup] = msgspec.field(default_factory=dict)
    running: ShownHorizon | None = None
    users: ShownUsers | None = None
    weight: Decimal | None = None

    @property
    def policy(self) -> str:
        """Name of the record's policy: the first part of its id; empty if there is none."""
        return policy_of(self.release_id or self.estimate_id or self.running_id)

    @property
    def quantity(self) -> str:
        """Name of the averaged quantity."""
        return self.value or quantity_of(self.speed)

    @property
    def query_name(self) -> str:
        """Name of the query over days that it answers; "" for none. A tracker's `query` is not a name."""
        return self.query if isinstance(self.query, str) else ""

    @property
    def query_kind(self) -> str:
        """`settlement` or `pulse` for a tracker's query that is not of one HAT; "" for others."""
        return query_kind(self.release_id)

    @property
    def hours(self) -> str:
        """Local start and end of its time on its date, `09:00-10:00`."""
        return f"{self.slot}-{self.end[11:16]}"

    @property
    def period(self) -> str:
        """Its dates: one, or the first and the last of an answer's period."""
        return f"{self.first_date} to {self.last_date}" if self.days > 1 else self.first_date or self.date


SHOWN: Final = msgspec.json.Decoder(Shown)
