"""Verdict of a plan of running means, in sentences."""

import math
from typing import Final

from hatcast.lab.plan.continual.choose import ContinualPlan
from hatcast.lab.plan.continual.criterion import Criterion
from hatcast.lab.plan.continual.kinds import Candidate

CRITERIA: Final = {
    Criterion.MEAN_RMS: "rms error of the running mean",
    Criterion.MEAN_MAX: "maximum error of the running mean",
    Criterion.SUM_RMS: "rms error of the running sum",
    Criterion.SUM_MAX: "maximum error of the running sum",
}
_LARGE: Final = 100_000
_EQUAL: Final = 0.005
_OF_MEAN: Final = {
    Criterion.SUM_RMS: Criterion.MEAN_RMS,
    Criterion.SUM_MAX: Criterion.MEAN_MAX,
}


def number(value: float) -> str:
    """Return a number with three digits that count, or all digits of an integer below 100,000."""
    if value >= _LARGE:
        exponent = math.floor(math.log10(value))
        return f"{value / 10**exponent:.2f}e{exponent}"
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def verdict(plan: ContinualPlan, unit: str) -> list[str]:
    """Return sentences: the best kind, noise of each slot alone, free running means, and a constant."""
    return [_best(plan, unit), _free(plan, unit), *_worthless(plan, unit)]


def _best(plan: ContinualPlan, unit: str) -> str:
    best, other = plan.best, plan.runner_up
    error, others = (each.errors.by(plan.criterion) for each in (best, other))
    of = unit if plan.criterion in (Criterion.MEAN_RMS, Criterion.MEAN_MAX) else f"{unit} x users"
    line = f"Best kind: {_with_noise(best)}, {CRITERIA[plan.criterion]} {number(error)} {of}."
    times = f"has {number(others / error)} times the error."
    if plan.per_slot_is_best:
        return f"{line} Noise of each slot alone is best here: the best other kind, {_with_noise(other)}, {times}"
    return f"{line} Noise of each slot alone ({_with_noise(other)}) {times}"


def _with_noise(each: Candidate) -> str:
    noise = each.setting.noise.value
    return each.name if each.kind.value == noise else f"{each.name} ({noise} noise)"


def _free(plan: ContinualPlan, unit: str) -> str:
    free = plan.free
    criterion = _OF_MEAN.get(plan.criterion, plan.criterion)
    cost = f"{free.daily_cost:g}"
    text = (
        f"Running means that cost nothing more (hats.running), of a policy whose day costs a user as much ({cost}):"
        f" {CRITERIA[criterion]} {_compared(plan, free.releases.by(criterion), unit)}, for releases with epsilon"
        f" {number(free.release_epsilon)} of a HAT"
    )
    if free.tracker is not None:
        tracker = free.tracker.by(criterion)
        text += f"; at most {_compared(plan, tracker, unit)}, for a tracker with daily_limit = {cost}"
    days = plan.stream.days
    if days > 1:
        text += (
            f". Their guarantee is for a day: the {days} days of a horizon add up to {days * free.daily_cost:g}, and a"
            f" continual policy guarantees {cost} for all of them"
        )
    return f"{text}."


def _compared(plan: ContinualPlan, error: float, unit: str) -> str:
    least = plan.best.errors.mean.by(plan.criterion)
    if abs(error - least) < _EQUAL * least:
        compared = "as much as the best kind above"
    else:
        compared = "less than each kind above" if error < least else "more than the best kind above"
    return f"{number(error)} {unit}, {compared}"


def _worthless(plan: ContinualPlan, unit: str) -> list[str]:
    error, constant = plan.best.errors.mean.by(plan.criterion), plan.constant
    line = (
        f"Not worth having: the middle of the range, which costs nothing, is off by {number(constant)} {unit} if values"
        " spread evenly over the range. More users a cell, a larger epsilon or a smaller max_slots help."
    )
    return [line] if error >= constant else []
