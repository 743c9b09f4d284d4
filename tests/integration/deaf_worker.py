"""A worker whose noise does not hear what it is added to, and writes down what it is asked for.

pipeline.worker(wrap=partial(deafen, path))

All noisy numbers are then functions of distances: whatever else differs between two runs follows from their readings.
"""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from hatcast.agents.release import hats
from hatcast.agents.worker import parts
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.mechanisms import Distances, Noisy, NoisyVector
from hatcast.stream.release import queries
from hatcast.stream.release.continual import RunningSums
from hatcast.stream.release.hats import releases_of
from hatcast.stream.release.queries import query_release_of

DRAWN = 7  # distances from 0: more than the threshold of a weight


class DeafNoise:
    """Answers every request by its distance alone. `hat`: what is released now."""

    hat = ""

    def __init__(self, path: Path) -> None:
        self._path = path

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        with self._path.open("a") as file:
            file.write(json.dumps([self.hat, value, distance, epsilon]) + "\n")
        return Noisy(DRAWN * distance, distance / epsilon)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        raise AssertionError

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        drawn = [self.laplace(value, distance, epsilon).value for value in values.tolist()]
        return NoisyVector(np.array(drawn, np.int64), distance / epsilon)

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        raise AssertionError

    def choose(self, weights: Integers, costs: Integers, rate: Fraction) -> int:
        raise AssertionError

    def uniform(self, number: int) -> int:
        raise AssertionError


def deafen(path: Path) -> None:
    """Replace the noise of this process."""
    noise = DeafNoise(path)

    def one_by_one(policy: Any, calendar: Any, batch: Any, given: Any, closed: Any) -> Any:
        found = []
        for hat in batch:
            noise.hat = "/".join(hat[:2])
            found += releases_of(policy, calendar, [hat], given, closed)
        return found

    advance = RunningSums.advance

    def cell_by_cell(self: RunningSums, slot: Any, cells: Any, given: Any) -> Any:
        found = []
        for cell in cells:
            noise.hat = f"{slot.key}/{cell.cell}"
            found += advance(self, slot, [cell], given)
        return found

    def named(period: Any, calendar: Any, cell: str, days: Any, given: Any) -> Any:
        noise.hat = f"{period.query.name}/{period.closing.key}/{cell}"
        return query_release_of(period, calendar, cell, days, given)

    setattr(hats, "releases_of", one_by_one)  # noqa: B010 - the product has no switch for it
    setattr(queries, "query_release_of", named)  # noqa: B010 - likewise
    setattr(RunningSums, "advance", cell_by_cell)  # noqa: B010 - likewise
    setattr(parts, "SystemNoise", lambda: noise)  # noqa: B010 - mypy: it is no SystemNoise
