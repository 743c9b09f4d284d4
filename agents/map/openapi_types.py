"""Types of the API's JSON responses, from which the OpenAPI document is generated. Records are those of the topics."""

from typing import Annotated, Any, Literal

import msgspec

from hatcast.stream.records.clusters import ClustersRecord
from hatcast.stream.records.days import BudgetRecord, QueryRecord
from hatcast.stream.records.estimates import EstimateRecord, RunningRecord
from hatcast.stream.records.fields import Cell, Date, Name, text
from hatcast.stream.records.releases import ReleaseRecord

SLOT: str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}$"
Instant = Annotated[str, msgspec.Meta(description="ISO 8601 with an offset", extra_json_schema={"format": "date-time"})]
Policy = Annotated[str, msgspec.Meta(description="name of the policy")]


class SlotHead(msgspec.Struct, frozen=True):
    """A slot."""

    slot: Annotated[str, text(SLOT, "local start")]
    start: Instant
    end: Instant
    label: Annotated[str, msgspec.Meta(description="its local date and hours in words, for displays")]


def _response(name: str, description: str, *members: tuple[str, Any]) -> type[msgspec.Struct]:
    """Return the type of a response about a policy, with these members after its name."""
    members = (("policy", Policy), *members)
    return msgspec.defstruct(name, members, frozen=True, namespace={"__doc__": description})


_SLOT = ("slot", SlotHead | None)
_BUDGET = ("budget", BudgetRecord | None)
_CELL = ("cell", Cell)
_RUNNING = ("running", list[RunningRecord])
_QUERIES = ("queries", list[QueryRecord])

Releases = _response(
    "Releases",
    "Releases of a slot, ordered by cell, and the budget of its day. Without any release `slot` is null.",
    *(_SLOT, _BUDGET, ("releases", list[ReleaseRecord])),
)
Estimates = _response(
    "Estimates",
    "Estimates of a slot, ordered by cell. Without any estimate `slot` is null.",
    *(_SLOT, ("estimates", list[EstimateRecord])),
)
Continual = _response(
    "Continual",
    "Releases of a continual policy as of a slot, ordered by cell, and the budget of its day.\n\n"
    "Their `mean` is the running mean since the horizon's start, which `running` describes: not that of a HAT.",
    *(_SLOT, _BUDGET, ("continual", list[ReleaseRecord])),
)
Running = _response("Running", "The newest running mean of each name and cell, ordered by name and cell.", _RUNNING)
Answers = _response("Answers", "Answers to queries over days, ordered by query, slot and cell.", _QUERIES)
Clusterings = _response(
    "Clusterings", "Results of clusterings, the newest first.", ("clusterings", list[ClustersRecord])
)
CellReleases = _response(
    "CellReleases", "Releases of a cell, ordered by time.", _CELL, ("releases", list[ReleaseRecord])
)
CellEstimates = _response(
    "CellEstimates", "Estimates of a cell, ordered by time.", _CELL, ("estimates", list[EstimateRecord])
)
CellContinual = _response(
    "CellContinual",
    "Releases of a continual policy about a cell, ordered by time.",
    *(_CELL, ("continual", list[ReleaseRecord])),
)
CellRunning = _response(
    "CellRunning", "The newest running mean of each name of a cell, ordered by name.", _CELL, _RUNNING
)
CellAnswers = _response(
    "CellAnswers", "Answers about a cell, ordered by query, the newest period first, and slot.", _CELL, _QUERIES
)


class StoredSlots(msgspec.Struct, frozen=True):
    """Stored slots and cells of one kind of records."""

    slots: list[SlotHead]
    cells: list[Cell]
    range: Annotated[tuple[float, float], msgspec.Meta(description="range of the colours")]


class StoredRunning(msgspec.Struct, frozen=True):
    """Stored cells of one running mean; `slot`, the latest slot of one of them."""

    name: Name
    window: str
    of: str
    slot: SlotHead
    cells: list[Cell]
    range: Annotated[tuple[float, float], msgspec.Meta(description="range of the colours")]


class StoredAnswers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Stored answers of one query and period."""

    query: Name
    kind: str
    speed_limit: float | None = None
    threshold: float | None = None
    value: str | None = None
    first_date: Date
    last_date: Date
    days: int
    slots: Annotated[dict[str, int], msgspec.Meta(description="number of answers by slot")]


class Stored(msgspec.Struct, frozen=True):
    """Everything that is stored of a policy."""

    policies: Annotated[list[str], msgspec.Meta(description="names of all policies, the newest first")]
    policy: Policy
    slots: Annotated[list[SlotHead], msgspec.Meta(description="of releases, ordered by start")]
    cells: Annotated[list[Cell], msgspec.Meta(description="of releases")]
    range: Annotated[tuple[float, float], msgspec.Meta(description="range of the colours")]
    estimates: StoredSlots
    running: Annotated[list[StoredRunning], msgspec.Meta(description="ordered by name")]
    continual: StoredSlots
    queries: list[StoredAnswers]
    clusterings: Annotated[list[str], msgspec.Meta(description="of results, the newest first")]


class StatusView(msgspec.Struct, frozen=True):
    """Freshness, by the server's clock."""

    live: Annotated[bool, msgspec.Meta(description="whether brokers answer for all partitions")]
    kafka: Annotated[str, msgspec.Meta(description="`ok`, or which brokers do not answer")]
    answered_at: Annotated[Instant, msgspec.Meta(description="of the partition that has been silent for longest")]
    newest_record_at: Annotated[Instant, msgspec.Meta(description="Kafka's time of the newest record")] | None
    now: Instant


class TimetableView(msgspec.Struct, frozen=True):
    """Size of the timetable."""

    routes: int
    stops: int


class Credit(msgspec.Struct, frozen=True):
    """A part of the base map's attribution; `link` is "" without one."""

    text: str
    link: str


class BasemapView(msgspec.Struct, frozen=True):
    """Base map; `bounds`: west, south, east and north, in degrees."""

    url: str
    bounds: tuple[float, float, float, float]
    credits: list[Credit]


class SurroundingsView(msgspec.Struct, frozen=True):
    """Surroundings that the map has; null: none."""

    timetable: TimetableView | None
    basemap: BasemapView | None


class Error(msgspec.Struct, frozen=True):
    """Rejected request."""

    error: Annotated[str, msgspec.Meta(description="one line: the problem and what to do")]


class Geometry(msgspec.Struct, frozen=True):
    """Geometry in longitude and latitude."""

    type: Literal["Polygon", "MultiPolygon", "MultiLineString", "LineString", "Point"]
    coordinates: list[Any]


class Feature(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """GeoJSON feature. Of a record: `properties` is the record, byte for byte, and `id` its id."""

    type: Literal["Feature"]
    id: str | None = None
    geometry: Geometry | None
    properties: dict[str, Any]


class FeatureCollection(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """GeoJSON (RFC 7946), with members that the JSON response has beside its records."""

    type: Literal["FeatureCollection"]
    features: list[Feature]
    policy: Policy | None = None
    cell: Cell | None = None
    slot: SlotHead | None = None
