"""The policy: what is promised. All of it is public: printed, documented, hashed into `policy_id`.

`read_policy` turns the `[policy]` table into a `Policy`, or refuses with the key and the mend (invariant I7).
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import rfc8785

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.cells_file import Chosen
from hatcast.stream.policy.checks import (
    cells_of,
    check_add_remove,
    check_privacy,
    check_succession,
    check_sums,
    check_times,
    check_values,
    most_hats_of,
    reject_above_of,
)
from hatcast.stream.policy.estimator_keys import EstimatorKeys, Relation, chosen_keys
from hatcast.stream.policy.hybrid_keys import HybridKeys, HybridUse, NoiseKind
from hatcast.stream.policy.query_keys import Query, check_queries, read_queries
from hatcast.stream.policy.table import PolicyTable, canonical, min_users_of
from hatcast.stream.policy.toml_tables import decode_table, duration_ms
from hatcast.stream.readings.reading import to_milli
from hatcast.stream.units import nano, nano_within

__all__ = ["EstimatorKeys", "HybridKeys", "HybridUse", "NoiseKind", "Policy", "Query", "Relation", "read_policy"]


@dataclass(frozen=True, slots=True)
class Policy:
    """What is promised. Values are milli-units of km/h, times milliseconds.

    canonical      what policy_id is the hash of: JSON by RFC 8785, without the name
    replaces, from_date   the policy that this one follows, and the first local date that is its own (YYYY-MM-DD)
    cells          H3 indexes, or None for all
    chosen         what a private choice of these cells has cost; None: nothing
    grid           km/h; releases are multiples of it
    delta          of the finer figure of a day; with Gaussian noise also of the promise itself
    total_limit    of all days of one user, for unit `user` only
    epsilon_nano   charge of one HAT in 1e-9, rounded up
    min_users      fewer are suppressed; 0 under add_remove: never by how many they are
    grouping, array_length, quantiles, weight_threshold   of the estimator, array_length a rule's name or a number of
                   places, weight_threshold in readings; None for those that it does not use
    hybrid         what holds for devices that do not trust the operator; None: there are none
    queries        over several days, each on every HAT
    most_hats      the most that one user's day can enter: K, or all there are where cells are listed
    """

    name: str
    policy_id: str
    canonical: bytes = field(repr=False)
    replaces: str | None
    from_date: str | None
    upper_bound: int
    reject_above: int | None
    drop_zero: bool
    timezone: str
    h3_resolution: int
    slot_length_ms: int
    hours: tuple[int, int]
    lateness_ms: int
    max_ahead_ms: int
    min_interval_ms: int
    cells: frozenset[int] | None = field(repr=False)
    chosen: Chosen | None
    grid: Decimal
    unit: str
    relation: Relation
    epsilon: float
    max_hats_per_day: int
    daily_limit: float
    total_limit: float | None
    delta: float
    min_users: int
    estimator: str
    grouping: str | None
    array_length: str | int | None
    quantiles: str | None
    weight_threshold: float | None
    hybrid: HybridKeys | None
    queries: tuple[Query, ...]
    most_hats: int

    @property
    def epsilon_nano(self) -> int:
        """What one release costs a user, in 1e-9, rounded up: of whichever group pays more."""
        return nano(self.epsilon if self.hybrid is None else self.hybrid.charged(self.epsilon))

    @property
    def takes_reports(self) -> bool:
        """Whether what devices send gets into releases."""
        return self.hybrid is not None and self.hybrid.use.local

    @property
    def daily_limit_nano(self) -> int:
        """What a user's day may cost, in 1e-9, rounded down."""
        return nano_within(self.daily_limit)

    @property
    def total_limit_nano(self) -> int | None:
        """What all days of a user may cost, in 1e-9, rounded down; None: the unit is one day."""
        return None if self.total_limit is None else nano_within(self.total_limit)

    @property
    def is_pure(self) -> bool:
        """Whether each charge is a bound by itself. If not, those of one day hold together with `delta`."""
        return self.hybrid is None or self.hybrid.noise is NoiseKind.LAPLACE


def read_policy(
    table: Mapping[str, Any], estimators: Mapping[str, EstimatorKeys], read_cells: Callable[[str], str]
) -> Policy:
    """The `[policy]` table of hatcast.toml, checked.

    estimators   the registry's keys, by name
    read_cells   the text of the file that `cells` names
    Raises SettingError with the key, the problem and the mend.
    """
    given = decode_table(table, PolicyTable, "policy")
    listed, cells_content = cells_of(given, read_cells)
    cells = None if listed is None else listed.cells
    check_values(given)
    check_succession(given)
    reject_above = reject_above_of(given)
    durations = {
        key: duration_ms(getattr(given, key), f"policy.{key}")
        for key in ("slot_length", "lateness", "max_ahead", "min_interval")
    }
    check_times(given, durations)
    check_privacy(given)
    keys = chosen_keys(given.estimator, given.privacy, estimators)
    charged = given.privacy.epsilon if keys.hybrid is None else keys.hybrid.charged(given.privacy.epsilon)
    check_sums(given, nano(charged), durations["slot_length"], cells)
    relation = Relation(given.privacy.relation)
    if relation is Relation.ADD_REMOVE:
        check_add_remove(given, durations["slot_length"], cells, cells_content)
    queries = read_queries(given, relation)
    if queries and keys.hybrid is not None:
        raise SettingError(
            "policy.query",
            f"reads central users only, and {given.estimator.name} takes devices too",
            "remove the queries, or give them a policy of their own",
        )
    most_hats = most_hats_of(given, durations["slot_length"], cells)
    check_queries(given, queries, most_hats)
    hashed = rfc8785.dumps(
        canonical(given, durations, cells_content, keys.used(), [query.canonical for query in queries])
    )
    return Policy(
        name=given.name,
        policy_id="b2:" + hashlib.blake2b(hashed, digest_size=16).hexdigest(),
        canonical=hashed,
        replaces=given.replaces,
        from_date=given.from_date,
        upper_bound=to_milli(given.upper_bound, "km/h"),
        reject_above=reject_above,
        drop_zero=given.drop_zero,
        timezone=given.timezone,
        h3_resolution=given.h3_resolution,
        slot_length_ms=durations["slot_length"],
        hours=given.hours,
        lateness_ms=durations["lateness"],
        max_ahead_ms=durations["max_ahead"],
        min_interval_ms=durations["min_interval"],
        cells=cells,
        chosen=None if listed is None else listed.chosen,
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
        grouping=keys.grouping,
        array_length=keys.array_length,
        quantiles=keys.quantiles,
        weight_threshold=keys.weight_threshold,
        hybrid=keys.hybrid,
        queries=queries,
        most_hats=most_hats,
    )
