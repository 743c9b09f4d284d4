"""`[policy.tracker]`: keys of the estimator `tracker`, checked.    [docs/specification/tracker.md, section 3]

A tracker has no epsilon of a HAT: `daily_limit` is what a bus loses on a day, whatever it does. So `[policy.privacy]`
has no `epsilon`, and the caps are not needed for privacy.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final

import h3.api.basic_int as h3
import msgspec
import numpy as np

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.cells_file import CellsFile, read_cells_file, text_of
from hatcast.stream.policy.estimator_keys import EstimatorKeys
from hatcast.stream.policy.method import Hashed, MethodCost, MethodKeys
from hatcast.stream.policy.query import TRACKER_QUERIES, Query
from hatcast.stream.policy.table import PolicyTable, check_weak
from hatcast.stream.policy.toml_tables import decode_table, member, such_as
from hatcast.stream.policy.value_keys import SPEED, Value
from hatcast.stream.units import NANO, nano_floor

TRACKER: Final = "tracker"  # name of the estimator
TRACKER_ESTIMATOR: Final[Mapping[str, EstimatorKeys]] = {TRACKER: EstimatorKeys()}
"""Its keys of [policy.estimator]: none. `read_policy` checks them as those of the other estimators."""
_DEFAULTS: Final[Mapping[str, int]] = {"max_hats_per_day": 500, "min_users": 3}
_WATCH_SHARE: Final = 0.5  # default
_LEAST: Final = NANO // 100  # 1e-9: with less, no query would be worth its price
_MOST: Final = 1e6  # epsilon
_WHERE: Final = "policy.tracker"


class Objective(StrEnum):
    """Weights of HATs: nearly equal, by the number of buses, or the mean of both."""

    CELLS = "cells"
    BUSES = "buses"
    MIX = "mix"


@dataclass(frozen=True, slots=True)
class TimetablePrior:
    """Constants of cells with a scheduled speed, which are hashed into policy_id."""

    # A city's own slope is near 1. The prior is wide and nearer to 0, so that a file that says nothing costs less.
    reference: float = 25.0  # km/h, from which scheduled speeds are counted
    # lowest, highest: km/h: bounds of that difference
    lowest: float = -20.0
    highest: float = 25.0
    # slope, slope_sd: prior mean and standard deviation of a cell's speed per km/h of that difference
    slope: float = 0.6
    slope_sd: float = 0.45
    variance: float = 18.0  # of a cell around it, (km/h)^2: as `Variances.cell`, with `REFERENCE_BOUND`


TIMETABLE_PRIOR: Final = TimetablePrior()


class TrackerTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.tracker]`: for the defaults of `price` and `watch_share` see `tracker_keys`."""

    share: float = 0.3
    """of `daily_limit`, for queries at the close of a slot; the rest is for the settlement of the day"""
    objective: str = "cells"
    """what is made accurate: `cells` (HATs nearly alike), `buses` (by number of vehicles) or `mix`"""
    price: Annotated[float | None, such_as(1.5, default="by `daily_limit`")] = None
    """in the value's unit: summed standard deviation that a vehicle's epsilon must save; without it, one for the
    daily limit ([specification](specification/tracker.md#3-when-queries-are-made))"""
    watch: Annotated[str | None, such_as("cells.txt")] = None
    """a file as for `cells`, with `source = "public"`: these cells are queried first, at the close of each slot"""
    watch_share: Annotated[float | None, such_as(0.5, default="0.5")] = None
    """of a vehicle's `daily_limit`, for queries of watched cells: 0.5 if there is a `watch`"""
    timetable: Annotated[str | None, such_as("gtfs.zip")] = None
    """a GTFS zip file that is not made from the protected readings: hexagons are expected at about their scheduled
    speeds. Another file holds from the next date on ([specification](specification/tracker.md#timetable))"""


@dataclass(frozen=True, slots=True)
class TrackerKeys(MethodKeys):
    """Keys of a tracker, which publishes what few queries of a day say about every HAT."""

    daily_limit: int  # epsilon that a bus can lose on one day to the tracker, in 1e-9
    # summed standard deviation, in the policy's unit, that one unit of a bus's epsilon must save in the settlement; at
    # first, because it falls
    price: float
    share: float = 0.3  # of the limit, for queries at the close of an hour; the rest is for the settlement
    objective: Objective = Objective.CELLS  # of the settlement
    watch: frozenset[str] = frozenset()  # cells that are queried first
    watch_share: float = 0.0  # of a bus's limit, for queries of watched cells
    # content of the watch file; empty without one
    watched: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    # path of a GTFS file; None: without one. Which one it is, is no part of the policy: it changes often
    timetable: str | None = None

    @property
    def settles_days(self) -> bool:
        return True

    def charged(self, _epsilon: float) -> float:
        """Return nothing, as all queries of a day are reserved together."""
        return 0.0

    def reserved(self, _epsilon: float, _date: str | None = None) -> MethodCost:
        """Return the day's limit. Without it no query is made."""
        return MethodCost(TRACKER_QUERIES, 1, self.daily_limit)

    def hashed(self) -> Hashed:
        keys = {"share": self.share, "objective": self.objective.value, "price": self.price}
        watch = {"watch": self.watched, "watch_share": self.watch_share} if self.watched else {}
        timetable = {} if self.timetable is None else {"timetable": asdict(TIMETABLE_PRIOR)}
        return Hashed(policy={TRACKER: keys | watch | timetable})


REFERENCE_BOUND: Final = 65.0  # km/h: the upper bound for which constants of the tracker hold
_USUAL_MARGIN: Final = 1.3  # a prior that is too wide costs less than intervals that are too narrow
_LIMITS: Final = (2.0, 5.0, 10.0, 20.0, 40.0)
_PRICES: Final = (5.0, 1.5, 0.8, 0.6, 0.3)
_OF_BUSES: Final = 0.75  # of them: there most of the value is in few HATs


def reference_width(width: float, usual: tuple[float, float] | None) -> float:
    """Return how wide the range is to which the constants are stretched: `REFERENCE_BOUND` for speeds.

    width   of the value's range
    usual   where about 95 of 100 of its readings are; None: anywhere in its range
    """
    return width if usual is None else _USUAL_MARGIN * (usual[1] - usual[0])


def default_price(epsilon: float, width: float, objective: Objective) -> float:
    """Return the price for a daily limit of `epsilon`, in the unit of values of this `reference_width`."""
    reference = math.exp(float(np.interp(math.log(epsilon), np.log(_LIMITS), np.log(_PRICES))))
    return reference * (_OF_BUSES if objective is Objective.BUSES else 1.0) * width / REFERENCE_BOUND


def rounded_price(price: float) -> float:
    """Return a price with three digits after the point, and at least three that count."""
    return round(price, max(3, 2 - math.floor(math.log10(price))))


_EPSILONS: Final = ("epsilon", "local_epsilon")


def with_default_estimator(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the [policy] table with `estimator`: a tracker where a day's limit, and no epsilon of a HAT, is given."""
    privacy = table.get("privacy")
    is_of_days = isinstance(privacy, Mapping) and "daily_limit" in privacy and not {*privacy} & {*_EPSILONS}
    return (
        {**table, "estimator": {"name": TRACKER}} if is_of_days and not {*table} & {"estimator", "continual"} else table
    )


def with_tracker_defaults(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the [policy] table with the defaults of a tracker: `epsilon` = `daily_limit`, and the caps.

    Any other table is returned as it is. Raises SettingError if a tracker's table has an `epsilon`.
    """
    estimator, privacy = table.get("estimator"), table.get("privacy")
    if not isinstance(estimator, Mapping) or estimator.get("name") != TRACKER or not isinstance(privacy, Mapping):
        return table
    if "epsilon" in privacy:
        raise SettingError(
            "policy.privacy.epsilon",
            "is not used by tracker, which has no epsilon of a HAT",
            "remove it: daily_limit is what a vehicle can lose on a day",
        )
    filled = {**_DEFAULTS, **privacy}
    limit = privacy.get("daily_limit")
    filled["epsilon"] = limit if isinstance(limit, int | float) else 1.0  # the error names daily_limit
    return {**table, "privacy": filled}


def tracker_keys(
    given: PolicyTable,
    queries: tuple[Query, ...],
    most_hats: int,
    read_cells: Callable[[str], str],
    value: Value | None = None,
) -> TrackerKeys | None:
    """Return the keys of a tracker policy; None for any other estimator.

    queries     over days, which are reserved out of the daily limit first
    most_hats   most HATs of a user's day: each may answer each query
    value       that of `[policy.value]`; None: the speed
    Raises SettingError.
    """
    if given.estimator.name != TRACKER:
        if given.tracker is not None:
            raise SettingError(_WHERE, f"is not used by {given.estimator.name}", 'remove it, or use name = "tracker"')
        return None
    table = decode_table(given.tracker or {}, TrackerTable, _WHERE)
    _check_values(table)
    if table.timetable is not None and value is not None and value.name != SPEED:
        raise SettingError(f"{_WHERE}.timetable", "is of speeds, not of [policy.value]", "remove it")
    limit = nano_floor(given.privacy.daily_limit) - most_hats * sum(query.epsilon_nano for query in queries)
    if limit < _LEAST:
        raise SettingError(
            "policy.privacy.daily_limit",
            f"{given.privacy.daily_limit:g} leaves {max(limit, 0) / NANO:g} for the tracker"
            + (f", after the queries of up to {most_hats} HATs" if queries else ""),
            f"raise it by {(_LEAST - limit) / NANO:g} or more, or lower the queries' epsilon or max_hats_per_day",
        )
    watched = _watched(given, table, read_cells)
    objective = Objective(table.objective)
    width = given.upper_bound if value is None else reference_width(value.width, value.usual) / 1000
    default = rounded_price(default_price(limit / NANO, width, objective))
    price = default if table.price is None else table.price
    return TrackerKeys(
        daily_limit=limit,
        price=price,
        share=table.share,
        objective=objective,
        watch=frozenset() if watched is None else frozenset(h3.int_to_str(cell) for cell in watched.cells),
        watch_share=0.0 if watched is None else _WATCH_SHARE if table.watch_share is None else table.watch_share,
        watched={} if watched is None else watched.canonical,
        timetable=table.timetable,
    )


def check_tracker(given: PolicyTable) -> None:
    """Check the keys of other tables against the tracker's requirements. Raises SettingError."""
    privacy, where = given.privacy, "policy.privacy"
    if not 0 < privacy.daily_limit <= _MOST:
        raise SettingError(f"{where}.daily_limit", "is not a valid limit", "use a number above 0, such as 5.0")
    if privacy.unit != "user_day":
        raise SettingError(f"{where}.unit", f"{privacy.unit!r} is not proved for tracker", 'use "user_day"')
    check_weak(privacy.daily_limit, f"{where}.daily_limit", privacy)
    for query in given.query:
        if query.get("name") == TRACKER_QUERIES:
            raise SettingError(
                "policy.query.name", f"{TRACKER_QUERIES!r} is the name of the tracker's reservation", "use another name"
            )


def _check_values(table: TrackerTable) -> None:
    for key, share in (("share", table.share), ("watch_share", table.watch_share)):
        if share is not None and not 0 <= share <= 1:
            raise SettingError(f"{_WHERE}.{key}", f"{share:g} is not a share", "use 0 to 1, such as 0.3")
    member(Objective, table.objective, f"{_WHERE}.objective")
    if table.price is not None and not 0 < table.price < math.inf:
        raise SettingError(
            f"{_WHERE}.price", f"{table.price:g} is not a price", "use a number above 0, or leave it out"
        )
    if table.watch is None and table.watch_share is not None:
        raise SettingError(f"{_WHERE}.watch_share", "is not used without watch", "name a file with watch, or remove it")


def _watched(given: PolicyTable, table: TrackerTable, read_cells: Callable[[str], str]) -> CellsFile | None:
    if table.watch is None:
        return None
    where = f"{_WHERE}.watch ({table.watch})"
    watched = read_cells_file(
        text_of(table.watch, where, read_cells), where, *(given.resolutions or (given.h3_resolution,))
    )
    if watched.source != "public":
        raise SettingError(where, "must be public", 'list cells that were chosen without data, with source = "public"')
    if not watched.cells:
        raise SettingError(where, "lists no cell", "list H3 indexes, one a line, or remove watch")
    return watched
