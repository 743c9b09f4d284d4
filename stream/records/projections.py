"""Projections: some fields of the record types, for readers that need no more and must be fast.

A projection names its record types in `OF`; tests/contracts/test_projections.py reads every golden with both. What
terminals show is in `shown`.
"""

from typing import Annotated, ClassVar, Final

import msgspec

from hatcast.stream.records.clusters import ClustersRecord
from hatcast.stream.records.days import BudgetRecord, QueryRecord
from hatcast.stream.records.estimates import EstimateRecord, RunningRecord
from hatcast.stream.records.fields import (
    NAME,
    Cell,
    Date,
    Epsilon,
    Name,
    Relation,
    Slot,
    Status,
    policy_of,
    query_kind,
    text,
)
from hatcast.stream.records.releases import ReleaseRecord


class Projection(msgspec.Struct, frozen=True, gc=False):
    """Some fields of each record type in `OF`."""

    OF: ClassVar[tuple[type[msgspec.Struct], ...]] = ()


class PublishedFields(Projection, frozen=True):
    """The field that every published record has, and no reading."""

    OF = (ReleaseRecord, QueryRecord, EstimateRecord, RunningRecord, BudgetRecord, ClustersRecord)

    policy_id: str


class Identified(Projection, frozen=True):
    """The id of a stored release or answer."""

    OF = (ReleaseRecord, QueryRecord)

    release_id: str


class Head(Projection, frozen=True):
    """Fields that decide how a release or an answer is sent, counted and ordered. `query`: the name of its query."""

    OF = (ReleaseRecord, QueryRecord)

    policy_id: str
    status: str
    cell: str
    date: str
    released_at: str
    seq: int | None = None
    query: str | dict[str, object] | None = None

    @property
    def is_answer(self) -> bool:
        """Whether it is an answer to a query over days. A tracker's `query` is not a name."""
        return isinstance(self.query, str)


class ChargedNoise(msgspec.Struct, frozen=True):
    """The scale of a noise."""

    scale: float | None = None


class ChargedValue(msgspec.Struct, frozen=True):
    """One of several values of a release."""

    noise: ChargedNoise


class ChargedQuery(msgspec.Struct, frozen=True):
    """A tracker's query: the epsilon that all queries of its date can cost a user."""

    limit: Epsilon


class ChargedHorizon(msgspec.Struct, frozen=True):
    """A running sum. max_cells: each costs a user the record's epsilon."""

    horizon: Date
    max_cells: Annotated[int, msgspec.Meta(ge=0)]


class Charged(Projection, frozen=True):
    """Fields of a release or an answer that a ledger needs, checked: a ledger is restored from whatever is on a topic.

    A charge below 0 would lower the ledger, and a name with ":" would be another policy's row there.
    """

    OF = (ReleaseRecord, QueryRecord)

    release_id: Annotated[str, text(f"^{NAME}/", "policy name, then what is released")]
    policy_id: str
    status: Status
    cell: str
    date: Date
    slot: str
    start: str
    end: str
    epsilon: Epsilon
    relation: Relation
    seq: int | None = None
    noise: ChargedNoise | None = None
    values: tuple[ChargedValue, ...] = ()
    query: str | ChargedQuery | None = None
    running: ChargedHorizon | None = None
    estimator: str = ""
    first_date: Date = ""
    last_date: Date = ""
    most_hats: Annotated[int, msgspec.Meta(ge=0)] = 0
    device_epsilon: Epsilon = 0.0


class PlacedFields(Projection, frozen=True, kw_only=True):
    """Fields by which the map indexes the records of a cell and slot."""

    cell: Cell
    date: Date
    slot: Slot
    start: str
    end: str
    unit: str = ""


class PlacedRelease(PlacedFields, frozen=True, kw_only=True):
    """A release on the map."""

    OF = (ReleaseRecord,)

    release_id: str
    mean: float | None = None
    running: msgspec.Raw = msgspec.Raw()

    @property
    def is_of_hat(self) -> bool:
        """Whether it is of one HAT, and not a query of a tracker's settlement or of a whole slot."""
        return not query_kind(self.release_id)

    @property
    def is_of_slot(self) -> bool:
        """Whether its mean is that of its slot, and not a running sum's."""
        return bytes(self.running) in (b"", b"null")


class PlacedNormal(msgspec.Struct, frozen=True):
    """The mean of an estimate or a running mean."""

    value: float


class PlacedEstimate(PlacedFields, frozen=True, kw_only=True):
    """An estimate on the map."""

    OF = (EstimateRecord,)

    estimate_id: str
    road: PlacedNormal
    mean: PlacedNormal | None = None


class PlacedRunning(PlacedFields, frozen=True, kw_only=True):
    """A running mean on the map."""

    OF = (RunningRecord,)

    running_id: str
    policy: Name
    name: Name
    window: str
    of: str
    mean: PlacedNormal | None = None


class PlacedBudget(Projection, frozen=True):
    """A budget record on the map."""

    OF = (BudgetRecord,)

    policy: str
    date: Date
    seq: int


class PlacedAnswer(Projection, frozen=True):
    """An answer on the map. The fields of its limit are as written."""

    OF = (QueryRecord,)

    release_id: str
    query: str
    kind: str
    cell: Cell
    slot: Slot
    first_date: Date
    last_date: Date
    days: int
    speed_limit: msgspec.Raw = msgspec.Raw()
    threshold: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()

    @property
    def policy(self) -> str:
        """Name of the policy."""
        return policy_of(self.release_id)


PUBLISHED: Final = msgspec.json.Decoder(PublishedFields)
IDENTIFIED: Final = msgspec.json.Decoder(Identified)
HEAD: Final = msgspec.json.Decoder(Head)
CHARGED: Final = msgspec.json.Decoder(Charged)
PLACED_RELEASE: Final = msgspec.json.Decoder(PlacedRelease)
PLACED_ESTIMATE: Final = msgspec.json.Decoder(PlacedEstimate)
PLACED_RUNNING: Final = msgspec.json.Decoder(PlacedRunning)
PLACED_BUDGET: Final = msgspec.json.Decoder(PlacedBudget)
PLACED_ANSWER: Final = msgspec.json.Decoder(PlacedAnswer)
