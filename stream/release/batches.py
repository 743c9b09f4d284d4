"""Releases of a batch of HATs: numbers whose noise has one scale are drawn together.    [decisions/0056]"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hatcast.stream.estimators import ESTIMATORS, Parameters
from hatcast.stream.estimators._one_draw import BeforeNoise, OneDraw
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.mechanisms import Noise, Noisy, VectorNoise
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.counts import counts_fields_of
from hatcast.stream.release.hats import HatChunks, Release, drawn_release, has_enough, release_of, users_of

Hat = tuple[str, str, HatChunks]
"""Slot (`date/name`), cell, contributions."""


def releases_of(policy: Policy, calendar: Calendar, hats: Sequence[Hat], noise: Noise) -> list[Release]:
    """Estimate final HATs, including their noise; each as `release_of` does."""
    estimator = _one_draw(policy)
    if estimator is None:
        return [release_of(policy, calendar, *hat, noise) for hat in hats]
    parameters = Parameters.of(policy)
    numbers: list[BeforeNoise] = []
    counts: list[dict[str, Any] | None] = []
    for _, _, chunks in hats:
        users = users_of(chunks.readings)
        if has_enough(policy, users):
            numbers.append(estimator.before_noise(users, parameters))
            counts.append(counts_fields_of(numbers[-1], users.counts, policy.estimator))
        else:
            counts.append(None)
    drawn = zip(numbers, draw_together(numbers, noise), strict=True)
    estimates = (number.estimate(noisy) for number, noisy in drawn)
    return [
        drawn_release(policy, calendar, slot, cell, (None if fields is None else next(estimates), fields))
        for (slot, cell, _), fields in zip(hats, counts, strict=True)
    ]


def _one_draw(policy: Policy) -> OneDraw | None:
    """Return the estimator of a policy whose HATs get one draw each; None if a HAT gets several, or devices' noise."""
    if policy.values or policy.hybrid is not None:
        return None
    estimator = ESTIMATORS[policy.estimator]
    return estimator if isinstance(estimator, OneDraw) else None


def draw_together(numbers: Sequence[BeforeNoise], noise: VectorNoise) -> list[Noisy]:
    """Add independent noise to each number, for its own distance and epsilon.

    One call draws for all numbers with one distance and epsilon. It returns only if the privacy map of its noise
    confirms this epsilon for this distance, so the claim of each number is compared with the scale that it gets.
    [docs/proofs.md, Noise drawn for many HATs at once]
    """
    together: dict[tuple[int, float], list[int]] = {}
    for index, number in enumerate(numbers):
        together.setdefault((number.distance, number.epsilon), []).append(index)
    found: dict[int, Noisy] = {}
    for (distance, epsilon), indexes in together.items():
        values = np.array([numbers[index].value for index in indexes], np.int64)
        drawn = noise.laplace_many(values, distance, epsilon)
        for index, value in zip(indexes, drawn.values.tolist(), strict=True):
            found[index] = Noisy(value, drawn.scale)
    return [found[index] for index in range(len(numbers))]
