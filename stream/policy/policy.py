"""The policy: all parameters of the releases. It is public: printed, documented and hashed into `policy_id`.

`read_policy` turns the `[policy]` table into a `Policy`. Its errors name the key and the fix
(docs/specification/release.md, Invariants, I7).
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal, TypeVar

import rfc8785

from hatcast.stream.errors import SettingError
from hatcast.stream.policy import checks
from hatcast.stream.policy.cells_file import FineCells, SelectionCost, fine_cells_of, with_coarse_resolution
from hatcast.stream.policy.composed_limit import ComposedLimit, canonical_limit, composed_limit, without_delta_of_limit
from hatcast.stream.policy.continual_keys import CONTINUAL_ESTIMATOR, continual_keys, with_continual_defaults
from hatcast.stream.policy.continual_keys import ContinualKeys as ContinualKeys
from hatcast.stream.policy.estimator_keys import EstimatorKeys as EstimatorKeys
from hatcast.stream.policy.estimator_keys import MeansKeys as MeansKeys
from hatcast.stream.policy.estimator_keys import Relation as Relation
from hatcast.stream.policy.estimator_keys import check_name, chosen_keys
from hatcast.stream.policy.hybrid_keys import GroupMeans as GroupMeans
from hatcast.stream.policy.hybrid_keys import HybridKeys as HybridKeys
from hatcast.stream.policy.hybrid_keys import HybridUse as HybridUse
from hatcast.stream.policy.method import MethodKeys
from hatcast.stream.policy.method import NoiseKind as NoiseKind
from hatcast.stream.policy.query import Query as Query
from hatcast.stream.policy.query import check_queries, read_queries
from hatcast.stream.policy.running_keys import Running, read_running
from hatcast.stream.policy.table import PolicyTable, canonical, min_users_of
from hatcast.stream.policy.toml_tables import decode_table, duration_ms
from hatcast.stream.policy.tracker_keys import (
    TRACKER,
    check_tracker,
    tracker_keys,
    with_default_estimator,
    with_tracker_defaults,
)
from hatcast.stream.policy.tracker_keys import TrackerKeys as TrackerKeys
from hatcast.stream.policy.value_keys import (
    SPEED,
    SPEED_UNIT,
    Value,
    read_values,
    with_canonical_value,
    with_single_value,
    with_values,
)
from hatcast.stream.policy.value_keys import ValuesKeys as ValuesKeys
from hatcast.stream.readings.reading import ValueUnits, to_milli
from hatcast.stream.records.fields import quantity_of
from hatcast.stream.units import nano_ceil, nano_floor

Method = MeansKeys | ValuesKeys | HybridKeys | TrackerKeys | ContinualKeys
K = TypeVar("K", bound=MethodKeys)


@dataclass(frozen=True, slots=True)
class Policy:
    """Public parameters of the releases. Values are in milli-units of their unit, times in milliseconds.

    epsilon_nano    charge of one HAT in 1e-9, rounded up
    """

    name: str
    policy_id: str
    canonical: bytes = field(repr=False)  # JSON by RFC 8785 without the name and `running`; policy_id is its hash
    # replaces, from_date: the previous policy, and the first local date of this one (YYYY-MM-DD)
    replaces: str | None
    from_date: str | None
    upper_bound: int  # U: the largest distance of two values; `value.upper` - `value.lower` with a value
    reject_above: int | None
    drop_zero: bool
    timezone: str
    h3_resolution: int  # of the cells; with `fine` of those outside of the listed finer cells
    fine: FineCells | None = field(repr=False)  # listed cells of finer resolutions; None: all cells have one resolution
    slot_length_ms: int
    hours: tuple[int, int]
    lateness_ms: int
    max_ahead_ms: int
    min_interval_ms: int
    cells: frozenset[int] | None = field(repr=False)  # H3 indexes, with the finer ones; None: all cells
    selection_cost: SelectionCost | None  # privacy cost of a private selection of `cells` or of finer cells; None: none
    grid: Decimal  # in the value's unit; releases are multiples of it
    unit: str
    relation: Relation
    epsilon: float  # of one HAT; the daily limit of a tracker, which has none
    max_hats_per_day: int
    daily_limit: float
    total_limit: float | None  # of all days of one user, for unit `user` only
    delta: float  # of the (epsilon, delta) that is shown for a day; with Gaussian noise every bound holds with it
    min_users: int  # a HAT with fewer users is suppressed; 0 under add_remove, where their number is private
    estimator: str
    # what is published, and how: the keys of the estimator; of running sums `epsilon` is of one cell's horizon
    method: Method
    queries: tuple[Query, ...]  # over several days, each answered for every cell and slot
    most_hats: int  # most HATs that one user's day can enter: K, or cells x slots if fewer are listed
    value: Value | None = None  # the one value of a reading that is released; None: its speed, in km/h from 0 to U
    # running means: post-processing of what is published, so not a part of `policy_id`
    running: tuple[Running, ...] = ()
    # (epsilon, delta) that `daily_limit` was given as, and the number of releases that it stands for; None: it was
    # given as a plain epsilon
    composed_limit: ComposedLimit | None = None

    @property
    def released_value(self) -> Value:
        """The value whose mean is published; of several values the speed."""
        return self.value or Value(SPEED, SPEED_UNIT, 0, self.upper_bound, self.grid)

    @property
    def value_name(self) -> str | None:
        """Name of the value in records; None: the speed."""
        return None if self.value is None or self.value.name == SPEED else self.value.name

    @property
    def speed(self) -> Literal["journey"] | None:
        """Which speed records say that they are the mean of: `journey`; None: that while moving, or another value."""
        return "journey" if self.value_name is None and not self.drop_zero else None

    @property
    def quantity(self) -> str:
        """Name of the averaged quantity, such as `speed while moving`."""
        return self.value_name or quantity_of(self.speed)

    @property
    def lower(self) -> int:
        """Lower bound of the released value, in milli-units: contributions are distances from it."""
        return 0 if self.value is None else self.value.lower

    @property
    def epsilon_nano(self) -> int:
        """Charge of one release in 1e-9, rounded up; in a hybrid policy that of the group that pays more.

        A tracker's releases are charged to its reservation of the day, running sums to that of the horizon.
        """
        return nano_ceil(self.method.charged(self.epsilon))

    @property
    def takes_reports(self) -> bool:
        """Whether releases use devices' reports."""
        return self.method.takes_reports

    @property
    def released_values(self) -> tuple[Value, ...]:
        """The values of a reading whose means are published together; one, or several with the speed first."""
        return self.method.values if isinstance(self.method, ValuesKeys) else (self.released_value,)

    @property
    def value_units(self) -> ValueUnits:
        """Names and units of the values that readings carry for this policy, other than the speed in any unit."""
        single = None if self.value_name is None else (self.value_name, self.released_value.unit)
        return ValueUnits({value.name: value.unit for value in self.released_values[1:]}, single)

    @property
    def daily_limit_nano(self) -> int:
        """Limit of a user's day in 1e-9, rounded down."""
        return nano_floor(self.daily_limit)

    @property
    def total_limit_nano(self) -> int | None:
        """Limit of all days of a user in 1e-9, rounded down; None: the unit is one day."""
        return None if self.total_limit is None else nano_floor(self.total_limit)

    @property
    def is_pure(self) -> bool:
        """Whether charges are pure epsilon. If not, the charges of a day hold together with `delta`."""
        return self.method.is_pure

    def keys_of(self, kind: type[K]) -> K:
        """Return the keys of the policy's method. Raises ValueError if it is not of this kind."""
        if not isinstance(self.method, kind):
            raise ValueError(f"{self.name} has no {kind.__name__}")  # noqa: TRY004 - the value is wrong, not its type
        return self.method


_DURATIONS: Final = ("slot_length", "lateness", "max_ahead", "min_interval")


def read_policy(
    table: Mapping[str, Any], estimators: Mapping[str, EstimatorKeys], read_cells: Callable[[str], str]
) -> Policy:
    """Check the `[policy]` table of hatcast.toml and return the policy.

    estimators   keys of the registered estimators, by name
    read_cells   returns the text of a file of cells that a key names
    Raises SettingError with the key, the problem and the fix.
    """
    table = with_default_estimator(table)
    filled = with_continual_defaults(table)
    check_name(filled, estimators if filled is table else CONTINUAL_ESTIMATOR)
    filled, limit = without_delta_of_limit(filled)
    filled, value = with_single_value(with_tracker_defaults(filled))
    given = with_coarse_resolution(decode_table(filled, PolicyTable, "policy"), table)
    listed, cells_content = checks.cells_of(given, read_cells)
    finer, fine, fine_content = fine_cells_of(given, listed, read_cells)
    cells = None if listed is None else listed.cells | (frozenset() if fine is None else fine.cells)
    durations = _check_single_keys(given, value)
    given, continual = continual_keys(given, durations["slot_length"], table["privacy"].get("daily_limit"))
    known = estimators if continual is None else CONTINUAL_ESTIMATOR
    chosen = chosen_keys(given.estimator, given.privacy, known)
    selection = next((each.cost for each in (listed, finer) if each is not None and each.cost), None)
    composed = None
    if limit is not None:
        given, composed = composed_limit(limit, given, chosen, known[given.estimator.name], selection)
    checks.check_sums(given, nano_ceil(chosen.charged(given.privacy.epsilon)), durations["slot_length"], cells)
    relation = Relation(given.privacy.relation)
    if relation is Relation.ADD_REMOVE:
        checks.check_add_remove(given, durations["slot_length"], cells, cells_content)
    values = read_values(given, relation, estimators)
    queries = read_queries(given, relation, value)
    _check_without_reports(queries, chosen)
    most_hats = checks.most_hats_of(given, durations["slot_length"], cells)
    tracker = tracker_keys(given, queries, most_hats, read_cells, value)
    if tracker is None:
        check_queries(given, queries, most_hats)
    method: Method = continual or tracker or with_values(chosen, values)
    hashed = canonical(given, durations, cells_content, method.hashed(), [query.canonical for query in queries])
    hashed["privacy"] |= canonical_limit(composed)
    content = rfc8785.dumps({**with_canonical_value(hashed, value), **fine_content})
    return Policy(
        name=given.name,
        policy_id="b2:" + hashlib.blake2b(content, digest_size=16).hexdigest(),
        canonical=content,
        replaces=given.replaces,
        from_date=given.from_date,
        upper_bound=to_milli(given.upper_bound, "km/h"),
        reject_above=checks.reject_above_of(given, value),
        drop_zero=given.drop_zero,
        timezone=given.timezone,
        h3_resolution=given.h3_resolution,
        fine=fine,
        slot_length_ms=durations["slot_length"],
        hours=given.hours,
        lateness_ms=durations["lateness"],
        max_ahead_ms=durations["max_ahead"],
        min_interval_ms=durations["min_interval"],
        cells=cells,
        selection_cost=selection,
        grid=Decimal(repr(given.grid)),
        unit=given.privacy.unit,
        relation=relation,
        epsilon=given.privacy.epsilon,
        max_hats_per_day=given.privacy.max_hats_per_day,
        daily_limit=given.privacy.daily_limit,
        total_limit=given.privacy.total_limit,
        delta=given.privacy.delta,
        min_users=min_users_of(given.privacy),
        estimator=given.estimator.name,
        method=method,
        queries=queries,
        most_hats=most_hats,
        value=value,
        running=read_running(given),
        composed_limit=composed,
    )


def _check_single_keys(given: PolicyTable, value: Value | None) -> dict[str, int]:
    """Check the keys that depend neither on cells nor on the estimator's own; return the durations in ms, by key."""
    if value is None:  # a value has checked its own range
        checks.check_range(given)
    checks.check_place(given)
    checks.check_transition(given)
    checks.reject_above_of(given, value)
    durations = {key: duration_ms(getattr(given, key), f"policy.{key}") for key in _DURATIONS}
    checks.check_times(given, durations)
    if given.estimator.name == TRACKER:
        check_tracker(given)
    checks.check_privacy(given)
    return durations


def _check_without_reports(queries: tuple[Query, ...], method: Method) -> None:
    if queries and isinstance(method, HybridKeys):
        raise SettingError(
            "policy.query",
            "reads only central users, but this estimator also uses devices' reports",
            "remove the queries, or move them to a policy of their own",
        )
