"""Contenders of a comparison: an estimator with settings, or its variant with the papers' printed constants."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.lab.evaluate.simulation import Floats
from hatcast.stream.errors import HatcastError, name_fix
from hatcast.stream.estimators import ESTIMATORS, Estimator, Parameters
from hatcast.stream.estimators.array_averaging import arrays_of
from hatcast.stream.estimators.array_length import PRINTED_RULES, RULES
from hatcast.stream.estimators.grouping import GROUPINGS, Arrays, Counts
from hatcast.stream.estimators.quantile import QUANTILES
from hatcast.stream.estimators.vectors import LINEAR, vector_form
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Relation

DEFAULT: Final = (
    "baseline",
    "array_averaging",
    "array_averaging:sensitivity",
    "opt_array_averaging",
    "levy",
    "quantile",
    "quantile:epsilon_dependent",
    "clipped_sum",
    "weighted_mean",
    "capped_ratio",
)
PRINTED: Final = "printed"  # the papers' own constants for WRAPAROUND
GRID: Final = Grid(Decimal("0.001"))
_RULES: Final = {**RULES, **PRINTED_RULES}
_LENGTH: Final = re.compile(r"[1-9][0-9]{0,8}")
_GAMMA: Final = re.compile(r"gamma=(0?\.[0-9]{1,9}|1)")
_DEFAULT_LENGTH: Final = "median"  # for estimators whose policy needs a number: as if that had been chosen well
_HAS_ARRAYS: Final = ("array_averaging", "opt_array_averaging", "levy", "quantile")


class BadContender(HatcastError):
    """A name in `--estimators` is invalid."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of the comparison.

    name      as written: `estimator[:setting]..`
    gamma     of `levy`; None: the default
    printed   use the papers' constants for WRAPAROUND: 2 U/K or 2 (b - a)/K, selections with s = 1. The selections
              then cost up to twice their share of epsilon: for reproduction only
    """

    name: str
    estimator: Estimator
    grouping: str | None
    array_length: str | int | None
    quantiles: str | None
    printed: bool = False
    gamma: float | None = None

    def resolve(
        self, counts: Counts, upper_bound_milli: int, epsilon: float, dimensions: int = 1
    ) -> "ResolvedContender":
        """Resolve the settings that depend on counts and epsilon: array length, threshold, sensitivity.

        Raises NoVectorForm in more than one dimension.
        """
        length = self.array_length
        if isinstance(length, str):
            # VectorForm has the reason for the division.
            length = _RULES[length](counts, epsilon / dimensions, self.grouping)
        parameters = Parameters(
            upper_bound_milli, GRID, epsilon, self.grouping, length, self.quantiles, gamma=self.gamma
        )
        threshold = self.estimator.keys.weight_threshold
        if threshold is not None and isinstance(length, int):
            parameters = replace(parameters, weight_threshold=threshold(length, epsilon))
        name, weights = self.estimator.name, None
        if dimensions > 1 or name in LINEAR:
            form = vector_form(name, dimensions)
            sensitivity = form.sensitivity(counts, parameters)
            (places, fills), whole = form.weights(counts, parameters)
            weights = np.asarray(places / fills / whole, np.float64)
        else:
            sensitivity = self.estimator.sensitivity(counts, parameters)
        if name not in _HAS_ARRAYS:
            return ResolvedContender(self, parameters, sensitivity, weights)
        arrays = arrays_of(counts, parameters)
        return ResolvedContender(self, parameters, sensitivity * (arrays.split if self.printed else 1), weights, arrays)


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedContender:
    """A contender with all settings resolved, for one epsilon.

    sensitivity   before an interval is drawn; in l1 for vectors
    weights       [L] weights of users' means, if the value is a weighted mean of them
    """

    contender: Contender
    parameters: Parameters
    sensitivity: Fraction
    weights: Floats | None
    arrays: Arrays | None = None

    @property
    def selection_split(self) -> int:
        """s of the selection (docs/specification/estimators.md, section 4): arrays that one user may influence."""
        return 1 if self.contender.printed or self.arrays is None else self.arrays.split


def hides_presence(name: str) -> bool:
    """Return whether a contender is for `add_remove`. name: `estimator[:setting]..`."""
    return Relation.ADD_REMOVE in ESTIMATORS[name.split(":", maxsplit=1)[0]].keys.relations


def default_estimators(dimensions: int) -> str:
    """Return the default of `--estimators`: all of `DEFAULT`; in several dimensions those with a vector form."""
    return ",".join(name for name in DEFAULT if dimensions == 1 or name.split(":")[0] in LINEAR)


def parse_contender(text: str) -> Contender:
    """Parse an estimator and its settings, in any order: `levy:wraparound:gamma=0.05`, `quantile:epsilon_dependent:20`.

    Raises BadContender.
    """
    name, *settings = text.strip().split(":")
    if name not in ESTIMATORS:
        raise BadContender(f"--estimators: {name!r} is not an estimator; {name_fix(name, ESTIMATORS)}")
    keys = ESTIMATORS[name].keys.defaults
    length = keys["array_length"] or _DEFAULT_LENGTH if "array_length" in keys else None
    parsed = Contender(text.strip(), ESTIMATORS[name], keys.get("grouping"), length, keys.get("quantiles"))
    used = {*keys, *(["gamma"] if ESTIMATORS[name].keys.gamma is not None else [])}
    for setting in settings:
        change = next((change for key, fits, change in _SETTINGS if key in used and fits(setting)), None)
        if change is None:
            raise BadContender(f"--estimators: {setting!r} is not a setting of {name}; see docs/estimators.md")
        parsed = change(parsed, setting)
    if parsed.printed and parsed.grouping != "wraparound":
        raise BadContender(f"--estimators: {text!r}: 'printed' needs wraparound; write {name}:wraparound:printed")
    return parsed


_SETTINGS: Final[tuple[tuple[str, Callable[[str], bool], Callable[[Contender, str], Contender]], ...]] = (
    ("grouping", GROUPINGS.__contains__, lambda contender, text: replace(contender, grouping=text)),
    ("grouping", PRINTED.__eq__, lambda contender, _: replace(contender, printed=True)),
    ("array_length", _RULES.__contains__, lambda contender, text: replace(contender, array_length=text)),
    (
        "array_length",
        lambda text: _LENGTH.fullmatch(text) is not None,
        lambda contender, text: replace(contender, array_length=int(text)),
    ),
    ("quantiles", QUANTILES.__contains__, lambda contender, text: replace(contender, quantiles=text)),
    (
        "gamma",
        lambda text: _GAMMA.fullmatch(text) is not None and float(text[6:]) > 0,
        lambda contender, text: replace(contender, gamma=float(text[6:])),
    ),
)
