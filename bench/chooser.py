"""The kind that `hatcast plan sums` takes against the best one measured, on random settings. No services."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click
import numpy as np

from bench.figures import Figure, say, show
from hatcast.lab.plan.continual import Criterion
from hatcast.lab.plan.continual.kinds import Candidate, PlannedSums, compare
from hatcast.lab.plan.continual.users import Participation, equal_users
from hatcast.stream.continual import KINDS
from tests.measured_sums import measured

LIMIT: Final = 1.02
_RUNS: Final = 20_000  # of each kind
_MORE_RUNS: Final = 400_000  # of those that may be the best
_NEAR: Final = 1.1
_SLOTS: Final = (6, 12, 24, 48, 84, 168)
_BOUND: Final = 65.0


@dataclass(frozen=True, slots=True)
class RandomSetting:
    """A stream, its users in each slot, and the criterion."""

    stream: PlannedSums
    users: float
    criterion: Criterion


@dataclass(frozen=True, slots=True)
class Choice:
    """The kind that is taken, the best one measured, and the ratio of their measured errors."""

    taken: str
    best: str
    ratio: float


def random_settings(number: int, most_slots: int = _SLOTS[-1]) -> list[RandomSetting]:
    """Return so many settings, the same each time."""
    draw = random.Random(0)
    return [_setting(draw, most_slots) for _ in range(number)]


def _setting(draw: random.Random, most_slots: int) -> RandomSetting:
    slots = draw.choice([each for each in _SLOTS if each <= most_slots])
    separation = draw.choice([1, 1, 2, 6, min(24, slots)])
    most = (slots - 1) // separation + 1
    max_slots = min(most, draw.choice([1, 2, draw.randint(1, most), most]))
    stream = PlannedSums(
        slots=slots,
        day_slots=min(slots, 24),
        participation=Participation(max_slots, separation, draw.choice([1, 20])),
        epsilon=round(10 ** draw.uniform(-1, 1), 2),
        delta=draw.choice([0.0, 1e-9, 1e-6, 1e-6]),
        bound=_BOUND,
    )
    return RandomSetting(stream, draw.choice([3.0, 10.0, 100.0]), draw.choice([*Criterion]))


def measured_choice(setting: RandomSetting, seed: int) -> Choice:
    """Measure all kinds, and those near the best once more in more runs."""
    users = equal_users(setting.stream.slots, setting.users)
    candidates = compare(setting.stream, users, setting.criterion)
    taken = min(candidates, key=lambda each: each.errors.by(setting.criterion))

    def errors(of: Sequence[Candidate], runs: int) -> dict[str, float]:
        generator = np.random.default_rng(seed)
        mechanisms = ((each, KINDS[each.kind](each.setting)) for each in of)
        return {
            each.name: measured(mechanism, users, _BOUND, runs, generator).by(setting.criterion)
            for each, mechanism in mechanisms
        }

    first = errors(candidates, _RUNS)
    near = [each for each in candidates if each is taken or first[each.name] <= _NEAR * min(first.values())]
    again = errors(near, _MORE_RUNS) if len(near) > 1 else first
    best = min(again, key=again.__getitem__)
    return Choice(taken.name, best, again[taken.name] / again[best])


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--settings", default=100, show_default=True, type=click.IntRange(1, 10_000))
def command(as_json: bool, settings: int) -> int:  # noqa: FBT001 - click's way
    """Measure every kind on random settings, and compare the kind that the plan takes with the best one."""
    ratios, wrong = [], 0
    for number, setting in enumerate(random_settings(settings)):
        choice, stream = measured_choice(setting, seed=number), setting.stream
        limits = stream.participation
        ratios.append(choice.ratio)
        wrong += choice.taken != choice.best
        say(
            f"{number:3} n={stream.slots} k={limits.max_slots} b={limits.min_separation} cells={limits.max_cells}"
            f" epsilon={stream.epsilon:g} delta={stream.delta:g} {setting.criterion.value}: {choice.taken}, best"
            f" {choice.best}, {choice.ratio:.4f}"
        )
    figures = [
        Figure("largest_ratio", max(ratios), "times", most=LIMIT),
        Figure("settings", settings, ""),
        Figure("other_kind_measured_best", wrong, "settings"),
    ]
    return show(f"chooser: {settings} settings", figures, as_json=as_json)
