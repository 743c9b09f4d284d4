"""The tables of published records: their columns are the fields that analyses use, and the record itself as JSON.

The short table is for spreadsheets and maps: hexagon, hour, value, interval and basis.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import h3.api.basic_str as h3
import msgspec

from hatcast.agents.tables.columns import RECORD, Column, Fields, Table, Type
from hatcast.stream.records.clusters import ClustersRecord
from hatcast.stream.records.days import BUDGET, QUERY
from hatcast.stream.records.estimates import ESTIMATE, RUNNING
from hatcast.stream.records.fields import PULSE, SETTLEMENT, policy_of, quantity_of, query_kind
from hatcast.stream.records.releases import RELEASE


def _at(*path: str | int) -> Callable[[Fields], Any]:
    """Return a function that returns the value at a path of keys and positions; None if the record has none."""

    def value(fields: Fields) -> Any:
        found: Any = fields
        for key in path:
            if found is None:
                return None
            found = found[key] if isinstance(key, int) else found.get(key)
        return found

    return value


def _columns(kind: Type, *names: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind, _at(name)) for name in names)


def _policy(fields: Fields) -> str:
    name: str = fields.get("release_id") or fields.get("estimate_id") or fields["policy"]
    return policy_of(name)


def _normal(name: str) -> tuple[Column, ...]:
    return (
        Column(name, Type.NUMBER, _at(name, "value")),
        Column(f"{name}_sd", Type.NUMBER, _at(name, "sd")),
        Column(f"{name}_low", Type.NUMBER, _at(name, "interval95", 0)),
        Column(f"{name}_high", Type.NUMBER, _at(name, "interval95", 1)),
    )


_PLACE: Final = (
    Column("policy", Type.TEXT, _policy),
    *_columns(Type.TEXT, "policy_id", "cell"),
    Column("remainder", Type.FLAG, lambda fields: fields.get("remainder", False)),
    *_columns(Type.DATE, "date"),
    *_columns(Type.TEXT, "slot"),
    *_columns(Type.INSTANT, "start", "end"),
)
_NAME: Final = Column("value", Type.TEXT, lambda fields: fields.get("value") or quantity_of(fields.get("speed")))
_VALUE: Final = (
    _NAME,
    *_columns(Type.NUMBER, "mean"),
    Column("low", Type.NUMBER, _at("interval95", 0)),
    Column("high", Type.NUMBER, _at("interval95", 1)),
    *_columns(Type.NUMBER, "raw"),
    *_columns(Type.TEXT, "unit"),
    Column("noise", Type.TEXT, _at("noise", "kind")),
    Column("noise_scale", Type.NUMBER, _at("noise", "scale")),
)
_PAID: Final = (
    *_columns(Type.NUMBER, "epsilon"),
    *_columns(Type.TEXT, "relation"),
    *_columns(Type.INSTANT, "released_at"),
)
_WHOLE: Final = _columns(Type.TEXT, RECORD)

RELEASES: Final = Table(
    name="releases",
    key="release_id",
    keeps_last=False,
    columns=(
        *_columns(Type.TEXT, "release_id", "status"),
        Column("settlement", Type.FLAG, lambda fields: query_kind(fields["release_id"]) == SETTLEMENT),
        Column("pulse", Type.FLAG, lambda fields: query_kind(fields["release_id"]) == PULSE),
        *_PLACE,
        *_VALUE,
        Column("users", Type.COUNT, _at("counts", "users")),
        Column("readings", Type.COUNT, _at("counts", "readings")),
        Column("horizon", Type.DATE, _at("running", "horizon")),
        Column("running_count", Type.COUNT, _at("running", "count")),
        Column("running_sum", Type.NUMBER, _at("running", "sum", "value")),
        Column("running_sum_sd", Type.NUMBER, _at("running", "sum", "sd")),
        *_columns(Type.TEXT, "estimator"),
        *_PAID,
        *_WHOLE,
    ),
    check=RELEASE.decode,
)
ESTIMATES: Final = Table(
    name="estimates",
    key="estimate_id",
    keeps_last=True,
    columns=(
        *_columns(Type.TEXT, "estimate_id", "stage"),
        *_PLACE,
        _NAME,
        *_columns(Type.TEXT, "unit"),
        *_normal("road"),
        *_normal("mean"),
        *_columns(Type.NUMBER, "residual_z"),
        *_columns(Type.TEXT, "alarm"),
        *_WHOLE,
    ),
    check=ESTIMATE.decode,
)
RUNNING_MEANS: Final = Table(
    name="running",
    key="running_id",
    keeps_last=True,
    columns=(
        *_columns(Type.TEXT, "running_id", "stage", "name", "window", "of"),
        *_PLACE,
        *_columns(Type.COUNT, "slots"),
        _NAME,
        *_columns(Type.TEXT, "unit", "weights"),
        *_normal("mean"),
        *_WHOLE,
    ),
    check=RUNNING.decode,
)
ANSWERS: Final = Table(
    name="answers",
    key="release_id",
    keeps_last=False,
    columns=(
        *_columns(Type.TEXT, "release_id", "status", "reason", "query", "kind"),
        *_columns(Type.NUMBER, "speed_limit", "threshold"),
        *_PLACE,
        *_columns(Type.DATE, "first_date", "last_date"),
        *_columns(Type.COUNT, "days", "days_used"),
        *_VALUE,
        *_PAID,
        *_WHOLE,
    ),
    check=QUERY.decode,
)
BUDGET_DAYS: Final = Table(
    name="budget",
    key="date",
    keeps_last=True,
    columns=(
        *_columns(Type.TEXT, "policy", "policy_id"),
        *_columns(Type.DATE, "date"),
        *_columns(Type.COUNT, "seq", "releases"),
        *_columns(Type.NUMBER, "epsilon_sum", "epsilon_user_day", "limit", "day_bound"),
        Column("epsilon_at_delta", Type.NUMBER, _at("epsilon_delta", "epsilon")),
        Column("delta", Type.NUMBER, _at("epsilon_delta", "delta")),
        *_columns(Type.COUNT, "max_hats_per_day"),
        Column("spent_largest", Type.NUMBER, _at("spent", "largest")),
        Column("spent_mean", Type.NUMBER, _at("spent", "mean")),
        *_columns(Type.TEXT, "replaces"),
        *_columns(Type.DATE, "from"),
        *_columns(Type.NUMBER, "total", "total_limit"),
        *_WHOLE,
    ),
    check=BUDGET.decode,
)

CLUSTERINGS: Final = Table(
    name="clusterings",
    key="clusters_id",
    keeps_last=False,
    columns=(
        *_columns(Type.TEXT, "clusters_id", "clustering", "policy", "policy_id"),
        *_columns(Type.DATE, "date"),
        *_columns(Type.NUMBER, "epsilon"),
        *_columns(Type.COUNT, "iterations", "seed"),
        *_columns(Type.TEXT, "relation", "blend"),
        Column("users_central", Type.COUNT, _at("users", "central")),
        Column("users_local", Type.COUNT, _at("users", "local")),
        *_columns(Type.TEXT, "unit", "ledger"),
        *_WHOLE,
    ),
    check=msgspec.json.Decoder(ClustersRecord).decode,
)

TABLES: Final[Mapping[str, Table]] = MappingProxyType(
    {"means": RELEASES, "estimates": ESTIMATES, "running": RUNNING_MEANS, "queries": ANSWERS, "budget": BUDGET_DAYS}
)
"""By key of `[topics]`."""


Place = Callable[[str], str | None]  # name of the place of a cell; None if it has none

_CELLS: Final = 10_000  # cached centres


def short(table: Table, place: Place | None = None) -> Table:
    """Return the short table of a kind of records; of one without places all columns but the record.

    place   None: without a column of places
    """
    if table.name not in _OF:
        return replace(table, columns=[each for each in table.columns if each.name != RECORD])
    head, mean, low, high, basis, tail = _OF[table.name]
    known = {each.name: each for each in table.columns}
    columns = (
        *(known[name] for name in head),
        Column("hexagon", Type.TEXT, lambda fields: fields["cell"]),
        Column("latitude", Type.NUMBER, lambda fields: _centre(fields["cell"])[0]),
        Column("longitude", Type.NUMBER, lambda fields: _centre(fields["cell"])[1]),
        *([] if place is None else [Column("place", Type.TEXT, lambda fields: place(fields["cell"]))]),
        known["date"],
        Column("hour", Type.TEXT, _hours),
        Column("quantity", Type.TEXT, known["value"].value),
        replace(known[mean], name="value"),
        replace(known[low], name="low"),
        replace(known[high], name="high"),
        known["unit"],
        replace(known[basis], name="basis"),
        *(known[name] for name in tail),
        # With the city's offset, as the record has it: a column of instants is in UTC.
        *(replace(known[name], type=Type.TEXT) for name in ("start", "end")),
    )
    return replace(table, columns=columns)


_Names = Sequence[str]
# Columns of the full table: before the hexagon; value, low, high and basis; after them.
_OF: Final[Mapping[str, tuple[_Names, str, str, str, str, _Names]]] = MappingProxyType(
    {
        "releases": ((), "mean", "low", "high", "status", ("settlement", "pulse")),
        "estimates": ((), "mean", "mean_low", "mean_high", "stage", ("road", "road_low", "road_high")),
        "running": (("name",), "mean", "mean_low", "mean_high", "stage", ("slots",)),
        "answers": (("query", "first_date", "last_date"), "mean", "low", "high", "status", ()),
    }
)


def _hours(fields: Fields) -> str:
    """Return the local start and end of the slot, or of a part of the day."""
    start = fields["start"][11:16] if fields.get("window") == "period" else fields["slot"]
    return f"{start}-{fields['end'][11:16]}"


@lru_cache(maxsize=_CELLS)
def _centre(cell: str) -> tuple[str | None, str | None]:
    """Return latitude and longitude of a cell's centre, to a decimetre; None if it is not an H3 cell."""
    if not h3.is_valid_cell(cell):
        return None, None
    latitude, longitude = h3.cell_to_latlng(cell)
    return f"{latitude:.6f}", f"{longitude:.6f}"
