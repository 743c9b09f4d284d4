"""Logs of one partition that reach every rule of docs/specification/fold.md and the nights on which clocks go back.

Drawn from a seeded generator, since most rules need dozens of records; Hypothesis chooses the seed and the
length, so a failure shrinks to a short log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any

import h3.api.basic_int as h3
from hypothesis import strategies as st

from hatcast.stream.fold.reading_fold import Fold
from hatcast.stream.policy.cells_file import CellsFile
from hatcast.stream.policy.continual_keys import AtEnd, ContinualKeys, ContinualKind
from hatcast.stream.policy.policy import NoiseKind, Policy
from tests.folding import ABSENT, DAY, HOUR, MINUTE, fold_of, record
from tests.laws.fold_oracle import EPOCH, MS, Horizon, Rules
from tests.replayed import policy_of

Log = list[tuple[int, bytes | None]]

# Around the instant at which clocks go back by an hour, go back by half an hour, and do nothing.
NIGHTS = {
    "Europe/Helsinki": 1_729_990_800_000,
    "Australia/Lord_Howe": 1_712_415_600_000,
    "Asia/Kolkata": 1_641_081_600_000,
}
PLACES = [(60.17, 24.94), (60.25, 24.94), (21.2, 72.8), (60.172, 24.94)]
FINE = [
    frozenset({h3.latlng_to_cell(*PLACES[0], 8)}),
    frozenset(h3.latlng_to_cell(*PLACES[at], 7 + at) for at in (1, 2)),
]
ODD_PLACES = [(0, 0), (0.0, 24.0), (91, 24.0), (60, -180.5), ("nan", 24.0), (60, "inf"), (None, 1), ("1", 1), (True, 1)]
VEHICLES = ["bus", "bus", " bus\n", "caf\u00e9", "cafe\u0301", "é" * 64]
ODD_VEHICLES = ["", "  ", 7, None, ABSENT, "é" * 65, "x" * 129]
SPEEDS = [30.5, 7, 65.0, 65.0006, 150.0, 150.0004, 12.3455, 0.0015, 41.667]
ODD_SPEEDS = [0, 0.0004, -0.0, -0.0004, -3, 150.0006, "inf", "nan", "-inf", 1e300, "1", True, None, ABSENT]
ODD_SPEEDS += [10**400, -(10**400)]  # no double can hold them
UNITS = ["km/h", "km/h", "km/h", ABSENT, "m/s", "mph", "kn"]
ODD_UNITS = ["furlong", None, "", 1]
BEFORE = [0, 0, 0, 999, 1000, 10_000, MINUTE, 10 * MINUTE, HOUR, 2 * HOUR, 26 * HOUR, -MINUTE, -2 * MINUTE]
ODD_TIMES = ["2024-10-27T03:00:00", "soon", None, True, ABSENT, [], 10**18, -(10**18), 1e300, "2024-10-27"]
ODD_VALUES: list[bytes | None] = [None, b"", b"{", b"[1]", b"\xff", b"null"]
STEPS = [0, 0, 0, 1, 1000, MINUTE, 10 * MINUTE, 10 * MINUTE, 30 * MINUTE, -HOUR]
ODD_ARRIVALS = [-1, -(10**15), 0, 10**15]
ONE_IN = 25
VALUES = {
    "values": ["delay", "speed", "load"],
    "value": [
        {"name": "load", "unit": "1", "lower": 0.25, "upper": 1.0, "grid": 0.01},
        {"name": "delay", "unit": "s", "lower": -600.0, "upper": 3600.0, "grid": 1.0},
    ],
}
DELAYS = [0, 12, -7.5, 61.0005, 0.0015, -600, -600.0006, 3600, 3601, -1e300, 1e300]
LOADS = [0.3, 1, 0.9999, -0.0, 2]
ODD_DELAYS = ["nan", "inf", "-inf", "1", True, None, ABSENT, [], {}, 10**400, -(10**400)]


@dataclass(frozen=True)
class Case:
    """A policy, a partition of a topic, and its log."""

    policy: Policy
    partition: int
    partitions: int
    partitioner: str
    now: int
    log: Log

    def empty_fold(self) -> Fold:
        return fold_of(self.policy, self.partition, self.partitions, self.partitioner)

    def rules(self) -> Rules:
        policy = self.policy
        return Rules(
            policy.timezone,
            policy.slot_length_ms,
            policy.hours,
            policy.lateness_ms,
            policy.max_ahead_ms,
            policy.min_interval_ms,
            policy.h3_resolution,
            policy.cells,
            frozenset() if policy.fine is None else policy.fine.cells,
            policy.upper_bound,
            policy.reject_above,
            policy.drop_zero,
            policy.max_hats_per_day,
            policy.from_date,
            self.partition,
            self.partitions,
            self.partitioner,
            tuple((value.name, value.lower, value.upper) for value in policy.released_values[1:]),
            horizon_rules(policy),
        )


@st.composite
def cases(draw: st.DrawFn, *, several: bool = False, mixed: bool = True, horizon: bool = False) -> Case:
    """several: the policy releases several values; mixed: it may have hexagons of several sizes.

    horizon: it releases running sums, so a user's participation in a horizon is limited.
    """
    chance = draw(st.randoms(use_true_random=True))
    length = draw(st.sampled_from([80, 40, 20]) | st.integers(0, 20))
    zone = chance.choice(sorted(NIGHTS))
    partitions = chance.choice([1, 1, 2, 3])
    policy = a_policy(chance, zone, VALUES if several else {}, FINE if mixed else ())
    return Case(
        policy=with_horizon(chance, policy, NIGHTS[zone]) if horizon else policy,
        partition=chance.randrange(partitions),
        partitions=partitions,
        partitioner=chance.choice(["murmur2", "crc32"]),
        now=NIGHTS[zone] + chance.choice([0, HOUR, 2 * DAY]),
        log=a_log(chance, NIGHTS[zone] - 2 * HOUR, length, several=several),
    )


def a_policy(chance: Random, zone: str, values: Mapping[str, Any], sizes_of: Sequence[frozenset[int]]) -> Policy:
    fine = chance.choice([None, None, *sizes_of])
    sizes: dict[str, Any] = {} if fine is None else {"resolutions": [7, 8, 9], "fine_cells": "fine.txt"}
    policy = policy_of(
        **values,
        files={"fine.txt": CellsFile("public", fine or frozenset()).text([])},
        **sizes,
        timezone=zone,
        slot_length=chance.choice(["1h", "1h", "30m", "15m", "24h"]),
        hours=chance.choice([[0, 24], [0, 24], [2, 4], [3, 23]]),
        lateness=chance.choice(["0s", "5m", "90m", "2d"]),
        min_interval=chance.choice(["1s", "10s", "10m"]),
        drop_zero=chance.choice([True, False]),
        reject_above=chance.choice([150.0, 150.0, "none"]),
        privacy={"epsilon": 1.0, "max_hats_per_day": chance.choice([1, 2, 3, 40]), "daily_limit": 105.0},
    )
    cells = frozenset(h3.latlng_to_cell(*place, policy.h3_resolution) for place in PLACES[:2]) | (fine or frozenset())
    first_date = chance.choice([None, None, None, (EPOCH + NIGHTS[zone] * MS).date().isoformat()])
    return replace(policy, cells=chance.choice([None, None, cells]), from_date=first_date)


def with_horizon(chance: Random, policy: Policy, night: int) -> Policy:
    """The policy with a participation that the logs exceed."""
    first = (EPOCH + night * MS).date() + timedelta(days=chance.choice([-30, -1, 0, 1]))
    days, end = chance.choice([1, 2, 3, 31]), chance.choice(list(AtEnd))
    return replace(
        policy,
        from_date=None,
        unit="user_horizon",
        method=ContinualKeys(
            kind=ContinualKind.TREE,
            noise=NoiseKind.LAPLACE,
            horizon_days=days,
            max_slots=chance.choice([1, 2, 4]),
            min_separation=chance.choice([1, 1, 2, 5]),
            max_cells=chance.choice([1, 2]),
            branching=None,
            buffers=None,
            at_end=end,
            first=first,
            slots=days * slots_of_day(policy),
        ),
    )


def horizon_rules(policy: Policy) -> Horizon | None:
    keys = policy.method
    if not isinstance(keys, ContinualKeys):
        return None
    only = keys.at_end is AtEnd.STOP
    first = keys.first.isoformat()
    return Horizon(first, keys.horizon_days, only, keys.max_slots, keys.min_separation, keys.max_cells)


def slots_of_day(policy: Policy) -> int:
    starts = range(0, DAY, policy.slot_length_ms)
    return sum(policy.hours[0] * HOUR <= start < policy.hours[1] * HOUR for start in starts)


def a_log(chance: Random, arrival: int, length: int, *, several: bool = False) -> Log:
    log: Log = []
    for _ in range(length):
        arrival += chance.choice(STEPS)
        value = a_record(chance, arrival, several=several)
        log.append((mostly(chance, [arrival], ODD_ARRIVALS), mostly(chance, [value], ODD_VALUES)))
    return log


def a_record(chance: Random, arrival: int, *, several: bool) -> bytes:
    latitude, longitude = mostly(chance, PLACES, ODD_PLACES)
    return record(
        vehicle=mostly(chance, VEHICLES, ODD_VEHICLES),
        time=mostly(chance, [a_time(chance, arrival - chance.choice(BEFORE))], ODD_TIMES),
        lat=latitude,
        lon=longitude,
        speed=mostly(chance, SPEEDS, ODD_SPEEDS),
        unit=mostly(chance, UNITS, ODD_UNITS),
        delay=mostly(chance, DELAYS, ODD_DELAYS) if several else ABSENT,
        load=mostly(chance, LOADS, ODD_DELAYS) if several else ABSENT,
    )


def a_time(chance: Random, instant: int) -> str | float:
    """An instant in one of the forms that are read, some with a half millisecond that rounds to even."""

    def iso(milliseconds: float, zone: str) -> str:
        return (EPOCH + milliseconds * MS).isoformat().removesuffix("+00:00") + zone

    forms: list[str | float] = [
        instant,
        str(instant),
        instant + 0.5,
        iso(instant, "Z"),
        iso(instant + 0.5, "+00:00"),
        iso(instant + 3 * HOUR, "+03:00"),
    ]
    return chance.choice(forms)


def mostly(chance: Random, usual: Sequence[Any], odd: Sequence[Any]) -> Any:
    """One of the odd ones now and then."""
    return chance.choice(odd if chance.randrange(ONE_IN) == 0 else usual)
