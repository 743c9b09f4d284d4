"""`[policy.continual]`: running sums and means over a horizon. Its keys, their checks, and its horizons.

A horizon is `horizon_days` local dates. Each cell has one running sum, from the first slot of the horizon on, and its
epsilon is for the whole horizon. So the sensitivity depends on the number of slots that one user enters in a cell, and
on the number of its cells: both are declared here and enforced by the fold (docs/specification/fold.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Any, Final

import msgspec

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.checks import CONTINUAL_UNIT, day_slots
from hatcast.stream.policy.estimator_keys import EstimatorKeys, Relation
from hatcast.stream.policy.method import NEVER, Hashed, MethodCost, MethodKeys, NoiseKind
from hatcast.stream.policy.query import RUNNING_SUMS, Period
from hatcast.stream.policy.table import PolicyTable
from hatcast.stream.policy.toml_tables import check_within, decode_table, member, plain_date, such_as
from hatcast.stream.units import NANO, float_below, nano_ceil, nano_floor

CONTINUAL: Final = "continual"  # name of the estimator of these policies, in records and in `Policy.estimator`
CONTINUAL_ESTIMATOR: Final[Mapping[str, EstimatorKeys]] = {CONTINUAL: EstimatorKeys()}
FIRST_MONDAY: Final = date(1970, 1, 5)  # first date of a policy without one, so that weeks are Monday to Sunday
DAYS_MAX: Final = 3660
SLOTS_MAX: Final = 100_000  # of a horizon: eleven years of hours
PLACES_MAX: Final = 65_535  # of a user: cells, and HATs of a day
BRANCHING_MAX: Final = 4095
BUFFERS_MAX: Final = 10
_COST_MAX: Final = 10**6 * NANO  # of a horizon: its decimal digits are exact in a float
_DELTA_MAX: Final = 1e-3
_DELTA_MIN: Final = 1e-15  # of one cell
_WHERE: Final = "policy.continual"
_PRIVACY: Final = "policy.privacy"
_MOVE: Final = "remove it, or move it to a policy of its own"


class ContinualKind(StrEnum):
    """Mechanism of a running sum.

    LAPLACE and GAUSSIAN add independent noise to each slot; the others add correlated noise.
    """

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"
    TREE = "tree"
    KARY = "kary"
    TOEPLITZ = "toeplitz"
    BLT = "blt"
    WITHHOLD_RELEASE = "withhold_release"


class AtEnd(StrEnum):
    """End of a horizon: begin the next one with a new charge, or release nothing more."""

    RENEW = "renew"
    STOP = "stop"


class ContinualTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy.continual]`: for the other defaults see `continual_keys`."""

    kind: Annotated[str, such_as("toeplitz")]
    """mechanism of the running sums: `laplace`, `gaussian`, `tree`, `kary`, `toeplitz`, `blt` or `withhold_release`"""
    horizon_days: Annotated[int, such_as(7)]
    """D: local dates of a horizon, 1 to 3660. Its sums begin at its first slot"""
    max_slots: Annotated[int, such_as(14)]
    """k: further slots of that vehicle in the same cell and horizon are not counted"""
    min_separation: int = 1
    """b: a slot that is closer to another of that vehicle and cell, in slots, is not counted; 1: any two slots"""
    max_cells: Annotated[int, such_as(20)]
    """further cells of that vehicle and horizon are not counted"""
    noise: Annotated[
        str | None, such_as("gaussian", default="`laplace`; `gaussian` for `gaussian`, `toeplitz` and `blt`")
    ] = None
    """or `gaussian`, whose guarantee is (epsilon, delta), with `delta` / `max_cells` for each cell; not for
    `laplace`, `kary` and `withhold_release`"""
    branching: Annotated[int | None, such_as(5, default="least maximum error")] = None
    """only `kary`: children of a node, odd"""
    buffers: Annotated[int | None, such_as(3, default="3")] = None
    """only `blt`: numbers that a cell's state holds"""
    at_end: str = "renew"
    """begin the next horizon with a new charge, or `stop`: nothing more is released"""
    from_date: Annotated[str | None, such_as("2022-02-01", default="`policy.from`")] = msgspec.field(
        default=None, name="from"
    )
    """the local date (`"2022-02-01"`) on which the first horizon begins, not before `policy.from`; without both,
    horizons are counted from Monday 1970-01-05. Required with `at_end = "stop"`"""


@dataclass(frozen=True, slots=True)
class ContinualKeys(MethodKeys):
    """Keys of `[policy.continual]` with defaults filled in."""

    kind: ContinualKind
    noise: NoiseKind
    horizon_days: int  # D, local dates of a horizon
    max_slots: int  # k: most slots that a user enters in one cell of a horizon
    min_separation: int  # b: two slots of one user in one cell are at least this many slots apart
    max_cells: int  # most cells that a user enters in a horizon
    branching: int | None  # of kind `kary`, odd; None: the one of the least maximum error, or another kind
    buffers: int | None  # of kind `blt`; None for the others
    at_end: AtEnd
    first: date  # first local date of the first horizon
    slots: int  # n: slots of a horizon, whatever the local clock skips

    @property
    def is_pure(self) -> bool:
        return self.noise is NoiseKind.LAPLACE

    @property
    def has_horizons(self) -> bool:
        return True

    def charged(self, _epsilon: float) -> float:
        """Return nothing, as a horizon is reserved in full."""
        return 0.0

    def reserved(self, epsilon: float, date: str | None = None) -> MethodCost | None:
        """Return a horizon's cost, on each of its dates. Each of a user's `max_cells` has its own sum."""
        if date is not None and self.horizon_of(date) is None:
            return None
        return self.horizon_cost(epsilon)

    def horizon_cost(self, epsilon: float) -> MethodCost:
        """Return the cost of one horizon for a user. Without room for all its cells nothing of a date is released."""
        return MethodCost(RUNNING_SUMS, self.max_cells, nano_ceil(epsilon))

    def dates(self, _from_date: str | None) -> tuple[str, str]:
        end = self.first + timedelta(days=self.horizon_days)
        return self.first.isoformat(), end.isoformat() if self.at_end is AtEnd.STOP else NEVER

    def horizon_of(self, day: str) -> Period | None:
        """Return the horizon that contains a local date.

        None: the date is before the first horizon, or after the last.
        """
        past = (date.fromisoformat(day) - self.first).days
        if past < 0 or (self.at_end is AtEnd.STOP and past >= self.horizon_days):
            return None
        return Period(self.first + timedelta(days=past - past % self.horizon_days), self.horizon_days)

    def horizons_in(self, days: int) -> int:
        """Return the most horizons that this many consecutive days touch."""
        return 1 if self.at_end is AtEnd.STOP else 1 + -(-(days - 1) // self.horizon_days)

    def hashed(self) -> Hashed:
        own = {"branching": self.branching, "buffers": self.buffers}
        keys: dict[str, Any] = {
            "kind": self.kind.value,
            "noise": self.noise.value,
            "horizon_days": self.horizon_days,
            "max_slots": self.max_slots,
            "min_separation": self.min_separation,
            "max_cells": self.max_cells,
            "at_end": self.at_end.value,
            **({} if self.first == FIRST_MONDAY else {"from": self.first.isoformat()}),
            **{key: value for key, value in own.items() if value is not None},
        }
        return Hashed(policy={CONTINUAL: keys})


def part_of_delta(delta: float, parts: int) -> float:
    """Return the largest delta of one part, such as a HAT or a cell, with which all of them sum to at most `delta`."""
    return float_below(Fraction(delta) / parts)


_EXCLUDED: Final[Mapping[str, str]] = {
    "estimator": f"remove it: {_WHERE}.kind is the mechanism",
    "tracker": _MOVE,
    "query": _MOVE,
    "values": "remove it: one value is released, the speed or that of [policy.value]",
    "value": "write [policy.value], with one bracket: one value is released",
}
_EXCLUDED_PRIVACY: Final[Mapping[str, str]] = {
    "max_hats_per_day": "remove it: max_cells, max_slots and min_separation limit a vehicle",
    "total_limit": f'remove it: unit "{CONTINUAL_UNIT}" has no limit over horizons',
    "local_epsilon": "remove it: devices' reports are not used",
    "max_coalition": "remove it: devices' reports are not used",
}
BUFFERS: Final = 3  # default of kind `blt`
NOISES: Final[Mapping[ContinualKind, tuple[NoiseKind, ...]]] = {
    ContinualKind.LAPLACE: (NoiseKind.LAPLACE,),
    ContinualKind.GAUSSIAN: (NoiseKind.GAUSSIAN,),
    ContinualKind.TREE: (NoiseKind.LAPLACE, NoiseKind.GAUSSIAN),
    ContinualKind.KARY: (NoiseKind.LAPLACE,),
    ContinualKind.TOEPLITZ: (NoiseKind.GAUSSIAN, NoiseKind.LAPLACE),
    ContinualKind.BLT: (NoiseKind.GAUSSIAN, NoiseKind.LAPLACE),
    ContinualKind.WITHHOLD_RELEASE: (NoiseKind.LAPLACE,),
}
"""Distributions of the noise of each kind, the default first"""


def with_continual_defaults(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the [policy] table, with the defaults that `[policy.continual]` requires.

    `daily_limit` and `max_hats_per_day` are set by `continual_keys`. Raises SettingError for tables and keys that such
    a policy does not have.
    """
    continual, privacy = table.get(CONTINUAL), table.get("privacy")
    if not isinstance(continual, Mapping) or not isinstance(privacy, Mapping):
        return table
    for key, fix in _EXCLUDED.items():
        if table.get(key) and not (key == "value" and isinstance(table[key], Mapping)):
            raise SettingError(f"policy.{key}", f"is not used with [{_WHERE}]", fix)
    for key, fix in _EXCLUDED_PRIVACY.items():
        if key in privacy:
            raise SettingError(f"{_PRIVACY}.{key}", f"is not used with [{_WHERE}]", fix)
    filled = {"unit": CONTINUAL_UNIT, "max_hats_per_day": 1, **privacy}
    epsilon = privacy.get("epsilon")
    filled.setdefault("daily_limit", epsilon if isinstance(epsilon, int | float) else 1.0)
    return {**table, "privacy": filled, "estimator": {"name": CONTINUAL}}


def continual_keys(given: PolicyTable, slot_length_ms: int, limit: object) -> tuple[PolicyTable, ContinualKeys | None]:
    """Return the [policy] table with its derived limits, and the keys of `[policy.continual]`; None without it.

    given    with the defaults of `with_continual_defaults`; its other keys are already checked
    limit    `daily_limit` as written; None: not written
    Raises SettingError.
    """
    if given.continual is None:
        return given, None
    table = decode_table(given.continual, ContinualTable, _WHERE)
    kind = member(ContinualKind, table.kind, f"{_WHERE}.kind", "is not a kind")
    slots_of_day = day_slots(given, slot_length_ms)
    noise = _noise(kind, table.noise)
    _check_participation(table, slots_of_day)
    _check_privacy(given, table, noise)
    slots = table.horizon_days * slots_of_day
    branching, buffers = _own_keys(kind, table)
    keys = ContinualKeys(
        kind=kind,
        noise=noise,
        horizon_days=table.horizon_days,
        max_slots=table.max_slots,
        min_separation=table.min_separation,
        max_cells=table.max_cells,
        branching=branching,
        buffers=buffers,
        at_end=member(AtEnd, table.at_end, f"{_WHERE}.at_end"),
        first=_first(given, table),
        slots=slots,
    )
    cost = table.max_cells * nano_ceil(given.privacy.epsilon)
    if cost > _COST_MAX:
        raise SettingError(
            f"{_PRIVACY}.epsilon",
            f"{given.privacy.epsilon:g} in each of {table.max_cells} cells is more than the ledger can count",
            f"use at most {_COST_MAX // table.max_cells / NANO:g}",
        )
    if limit is not None and nano_floor(given.privacy.daily_limit) < cost:
        raise SettingError(
            f"{_PRIVACY}.daily_limit",
            f"{given.privacy.daily_limit:g} is below what a horizon costs a vehicle: {table.max_cells} cells at "
            f"epsilon {given.privacy.epsilon:g}",
            f"leave it out, write {cost / NANO:g} or more, or lower epsilon or max_cells",
        )
    privacy = msgspec.structs.replace(
        given.privacy,
        max_hats_per_day=table.max_cells * _most_slots(table, slots_of_day),
        daily_limit=cost / NANO if limit is None else given.privacy.daily_limit,
    )
    return msgspec.structs.replace(given, privacy=privacy), keys


def _most_slots(table: ContinualTable, slots_of_day: int) -> int:
    """Return the most slots of one day that a user enters in one cell."""
    return min(table.max_slots, -(-slots_of_day // table.min_separation))


def _noise(kind: ContinualKind, text: str | None) -> NoiseKind:
    """Return the distribution of the noise, or its default."""
    key, noises = f"{_WHERE}.noise", NOISES[kind]
    noise = noises[0] if text is None else member(NoiseKind, text, key, "is not a noise distribution")
    if noise not in noises:
        raise SettingError(key, f"kind {kind.value!r} has {noises[0].value} noise", "remove it")
    return noise


def _check_participation(table: ContinualTable, slots_of_day: int) -> None:
    """Check the horizon and the declared participation, each by itself and together."""
    check_within(table.horizon_days, 1, DAYS_MAX, f"{_WHERE}.horizon_days", "is not a valid number of days")
    slots = table.horizon_days * slots_of_day
    if not slots:
        raise SettingError("policy.hours", "no slot starts within them", "use longer hours, or a shorter slot_length")
    if slots > SLOTS_MAX:
        raise SettingError(
            f"{_WHERE}.horizon_days",
            f"{table.horizon_days} days have {slots:,} slots",
            f"use at most {SLOTS_MAX // slots_of_day}, or longer slots",
        )
    check_within(table.max_slots, 1, slots, f"{_WHERE}.max_slots")
    check_within(table.min_separation, 1, slots, f"{_WHERE}.min_separation")
    check_within(table.max_cells, 1, PLACES_MAX // _most_slots(table, slots_of_day), f"{_WHERE}.max_cells")
    if (table.max_slots - 1) * table.min_separation + 1 > slots:
        fit = (slots - 1) // table.min_separation + 1
        raise SettingError(
            f"{_WHERE}.max_slots",
            f"{table.max_slots} slots that are {table.min_separation} apart do not fit into the {slots} of a horizon",
            f"use at most {fit}, or a smaller min_separation",
        )


def _check_privacy(given: PolicyTable, table: ContinualTable, noise: NoiseKind) -> None:
    """Check relation, unit and delta."""
    privacy = given.privacy
    if privacy.relation != Relation.REPLACE:
        raise SettingError(
            f"{_PRIVACY}.relation", f"{privacy.relation!r} is not proved for [{_WHERE}]", 'use relation = "replace"'
        )
    if noise is NoiseKind.LAPLACE:
        return
    if privacy.delta > _DELTA_MAX:
        raise SettingError(
            f"{_PRIVACY}.delta",
            f"{privacy.delta:g} is part of the guarantee with Gaussian noise, and too large",
            f"use at most {_DELTA_MAX:g}, such as 1e-6",
        )
    if privacy.delta < _DELTA_MIN * table.max_cells:
        raise SettingError(
            f"{_PRIVACY}.delta",
            f"{privacy.delta:g} leaves less than {_DELTA_MIN:g} for each of {table.max_cells} cells",
            f'use at least {_DELTA_MIN * table.max_cells:g}, or noise = "laplace"',
        )


def _own_keys(kind: ContinualKind, table: ContinualTable) -> tuple[int | None, int | None]:
    """Return the branching factor of kind `kary`, None without one, and the number of buffers of kind `blt`."""
    owners = (("branching", table.branching, ContinualKind.KARY), ("buffers", table.buffers, ContinualKind.BLT))
    for key, value, owner in owners:
        if value is not None and kind is not owner:
            raise SettingError(f"{_WHERE}.{key}", f"is not used by kind {kind.value!r}", "remove it")
    branching = table.branching
    if branching is not None and (not 3 <= branching <= BRANCHING_MAX or branching % 2 == 0):
        raise SettingError(
            f"{_WHERE}.branching", f"{branching} is not an odd number from 3 to {BRANCHING_MAX}", "use one, such as 5"
        )
    buffers = BUFFERS if table.buffers is None else table.buffers
    check_within(buffers, 1, BUFFERS_MAX, f"{_WHERE}.buffers")
    return branching, buffers if kind is ContinualKind.BLT else None


def _first(given: PolicyTable, table: ContinualTable) -> date:
    """Return the first date of the first horizon: `from`, or by default that of the policy."""
    text = given.from_date if table.from_date is None else table.from_date
    if text is None:
        if table.at_end == AtEnd.STOP:
            raise SettingError(
                f"{_WHERE}.from",
                'is missing, and at_end = "stop" requires it',
                'write the first local date of the horizon, such as "2022-02-01"',
            )
        return FIRST_MONDAY
    first = plain_date(text, f"{_WHERE}.from")
    if first < FIRST_MONDAY:
        raise SettingError(f"{_WHERE}.from", f"{text!r} is too early", f"use {FIRST_MONDAY} or later")
    if given.from_date is not None and text < given.from_date:
        raise SettingError(f"{_WHERE}.from", f"{text!r} is before policy.from", f"use {given.from_date} or later")
    return first
