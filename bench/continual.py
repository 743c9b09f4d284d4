"""Running sums: CPU seconds of one slot of 10,000 cells, and bytes of a cell, for each kind. No services."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import click
import numpy as np

from bench.figures import Figure, middle, show
from hatcast.stream.continual import KINDS, Entries, Mechanism, Step, SumSetting
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.continual_keys import ContinualKind
from hatcast.stream.policy.method import NoiseKind

_USERS: Final = 10  # of a cell in a slot
_BOUND: Final = 65_000
_NIGHT: Final = 6  # slots without a user
_BATCH: Final = 500  # cells that get their past at once
_MOST_SECONDS: Final = 5.0  # half of what a slot may take
_MOST_BYTES: Final = {ContinualKind.TOEPLITZ: 16, ContinualKind.WITHHOLD_RELEASE: 16}
"""for each slot of the horizon; all other kinds:"""
_CONSTANT_BYTES: Final = 512
_LAPLACE: Final = frozenset({ContinualKind.LAPLACE, ContinualKind.KARY, ContinualKind.WITHHOLD_RELEASE})


@dataclass(frozen=True, slots=True)
class _Stream:
    """A mechanism, and the states of all cells before the last slot."""

    mechanism: Mechanism
    states: Sequence[bytes]
    entries: Entries


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--cells", default=10_000, show_default=True, type=click.IntRange(1, 10**6))
@click.option("--slots", default=168, show_default=True, type=click.IntRange(10, 10_000), help="Of the horizon.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 100))
def command(as_json: bool, cells: int, slots: int, rounds: int) -> int:  # noqa: FBT001 - click's way
    """Measure the last slot of a horizon, alone and after a night, and the state of a cell."""
    figures: list[Figure] = []
    for kind in KINDS:
        figures += _figures(kind, cells, slots, rounds)
    return show(f"continual: {cells} cells, {slots} slots", figures, as_json=as_json)


def _figures(kind: ContinualKind, cells: int, slots: int, rounds: int) -> Iterator[Figure]:
    laplace = kind in _LAPLACE
    begun = time.process_time()
    setting = SumSetting(
        slots,
        max_slots=min(24, slots),
        min_separation=1,
        bound=_BOUND,
        epsilon=1.0,
        delta=0.0 if laplace else 1e-6,
        noise=NoiseKind.LAPLACE if laplace else NoiseKind.GAUSSIAN,
    )
    mechanism = KINDS[kind](setting)
    mechanism.sd(slots - 1)  # calibrates the noise
    made = time.process_time() - begun
    size = 0
    for name, first in (("slot", slots - 2), ("slot_after_a_night", slots - 2 - _NIGHT)):
        stream = _stream(mechanism, cells, first)
        seconds = []
        for _ in range(rounds):
            begun = time.process_time()
            steps = [Step(state, slots - 1, stream.entries) for state in stream.states]
            advanced = mechanism.advance(steps, SystemNoise())
            seconds.append(time.process_time() - begun)
            size = max(len(each.state) for each in advanced)
        yield middle(f"{kind}_{name}_s", seconds, "s", most=_MOST_SECONDS * cells / 10_000)
    most = _MOST_BYTES[kind] * slots + _CONSTANT_BYTES if kind in _MOST_BYTES else _CONSTANT_BYTES
    yield Figure(f"{kind}_state", size, "B", most=most)
    yield Figure(f"{kind}_made_s", made, "s")


def _stream(mechanism: Mechanism, cells: int, last: int) -> _Stream:
    """Return states of cells that had users in the first slots and in slot `last`. Each batch of cells has one past."""
    entries = Entries(np.arange(_USERS, dtype=np.uint64), np.arange(_USERS, dtype=np.int64) * _BOUND // _USERS)
    few = min(cells, _BATCH)
    states: list[bytes | None] = [None] * few
    for index in sorted({*range(min(8, last)), last}):
        advanced = mechanism.advance([Step(state, index, entries) for state in states], SystemNoise())
        states = [each.state for each in advanced]
    known = [state for state in states if state is not None]
    return _Stream(mechanism, (known * (cells // few + 1))[:cells], entries)
