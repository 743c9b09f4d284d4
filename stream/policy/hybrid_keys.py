"""Keys of hybrid estimators, for devices that do not trust the operator.

`[policy.privacy]` local_epsilon, max_coalition; `[policy.estimator]` noise, sigma, sigma_local, mean_gap, groups.
See docs/specification/estimators.md, section 6.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.method import Hashed, MethodKeys, NoiseKind
from hatcast.stream.policy.table import EstimatorTable, PrivacyTable, check_weak, epsilon_problem
from hatcast.stream.policy.toml_tables import member
from hatcast.stream.readings.reading import to_milli
from hatcast.stream.units import nano_ceil

_ESTIMATOR: Final = "policy.estimator"
_PRIVACY: Final = "policy.privacy"
_SPREAD: Final = ("sigma", "sigma_local", "mean_gap")


class GroupMeans(StrEnum):
    """Means in a release: the blend of both groups, or also each group's own mean."""

    TOGETHER = "together"
    SEPARATE = "separate"


@dataclass(frozen=True, slots=True)
class HybridUse:
    """Inputs of a hybrid estimator."""

    # central, local: whether a release uses data of central users, and reports of local devices
    central: bool
    local: bool
    all_local: bool = False  # central users' means get the devices' noise
    # the keys of [policy.estimator] on the distribution of users' means; the first is required
    spread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HybridKeys(MethodKeys):
    """Keys of a hybrid estimator, which publishes means of telemetry and devices' reports."""

    use: HybridUse
    noise: NoiseKind
    local_epsilon: float  # epsilon of a device's noise on each of its reports
    # number of local users that may share their noise values; None: no amplification is claimed
    max_coalition: int | None
    # sigma_milli, sigma_local_milli, mean_gap_milli: milli-units; None, None, 0 if the estimator does not use them
    sigma_milli: int | None
    sigma_local_milli: int | None
    mean_gap_milli: int
    groups: GroupMeans = GroupMeans.TOGETHER  # means in a release

    @property
    def is_pure(self) -> bool:
        return self.noise is NoiseKind.LAPLACE

    @property
    def takes_reports(self) -> bool:
        return self.use.local

    def charged(self, epsilon: float) -> float:
        """Return the larger of the two groups' epsilons for one release. Devices charge themselves when they send."""
        central = self.local_epsilon if self.use.all_local else epsilon if self.use.central else 0.0
        return max(central, self.local_epsilon if self.use.local else 0.0)

    def hashed(self) -> Hashed:
        privacy: dict[str, Any] = {"local_epsilon": self.local_epsilon}
        if self.max_coalition is not None:
            privacy["max_coalition"] = self.max_coalition
        numbers = zip(_SPREAD, (self.sigma_milli, self.sigma_local_milli, self.mean_gap_milli), strict=True)
        spread = {key: value for key, value in numbers if key in self.use.spread}
        groups = {} if self.groups is GroupMeans.TOGETHER else {"groups": self.groups.value}
        return Hashed(privacy, {"noise": self.noise.value} | spread | groups)


def hybrid_keys(table: EstimatorTable, privacy: PrivacyTable, use: HybridUse | None) -> HybridKeys | None:
    """Return the keys of a hybrid estimator; None for any other. Raises SettingError.

    The other keys of `privacy` are already checked.
    """
    given: dict[str, object] = {
        f"{_PRIVACY}.local_epsilon": privacy.local_epsilon,
        f"{_PRIVACY}.max_coalition": privacy.max_coalition,
        f"{_ESTIMATOR}.noise": table.noise,
        f"{_ESTIMATOR}.groups": table.groups,
    } | {f"{_ESTIMATOR}.{key}": getattr(table, key) for key in _SPREAD if use is None or key not in use.spread}
    for key, value in given.items():
        if value is not None and (use is None or key.rpartition(".")[2] in _SPREAD):
            raise SettingError(key, f"is not used by {table.name}", "remove it")
    if use is None:
        return None
    if privacy.unit != "user_day":
        raise SettingError(
            f"{_PRIVACY}.unit",
            f"{privacy.unit!r} cannot be guaranteed for devices, whose ids change every day",
            'use "user_day"',
        )
    named = NoiseKind.LAPLACE if table.noise is None else table.noise
    noise = member(NoiseKind, named, f"{_ESTIMATOR}.noise", "is not a noise distribution")
    groups = _groups(table, use)
    local_epsilon = _local_epsilon(table.name, privacy, use)
    if noise is NoiseKind.LAPLACE and privacy.max_coalition is not None:
        raise SettingError(
            f"{_PRIVACY}.max_coalition",
            "is for amplification, which Laplace noise does not have",
            'remove it, or use noise = "gaussian"',
        )
    if privacy.max_coalition is not None and privacy.max_coalition < 0:
        raise SettingError(f"{_PRIVACY}.max_coalition", "is not a number of devices", "use 0 or more, or leave it out")
    sigma, sigma_local, gap = _spread(table, use)
    keys = HybridKeys(use, noise, local_epsilon, privacy.max_coalition, sigma, sigma_local, gap, groups)
    _check_charge(keys, privacy)
    return keys


def _groups(table: EstimatorTable, use: HybridUse) -> GroupMeans:
    where, text = f"{_ESTIMATOR}.groups", table.groups
    if text is None:
        return GroupMeans.TOGETHER
    if text not in set(GroupMeans):
        raise SettingError(where, f"{text!r} is unknown", f"use {' or '.join(GroupMeans)}")
    if text == GroupMeans.SEPARATE and not (use.central and use.local):
        raise SettingError(where, f"is not used by {table.name}, which reads only one group", "remove it, or use pwh")
    return GroupMeans(text)


def _local_epsilon(name: str, privacy: PrivacyTable, use: HybridUse) -> float:
    """Return `local_epsilon`; default: epsilon. They must be equal if the estimator uses only one of them."""
    where, given = f"{_PRIVACY}.local_epsilon", privacy.local_epsilon
    if given is None:
        return privacy.epsilon
    if not use.local and given != privacy.epsilon:
        raise SettingError(where, f"is not used by {name}, which uses no reports", "remove it")
    if (not use.central or use.all_local) and given != privacy.epsilon:
        raise SettingError(
            where, f"differs from policy.privacy.epsilon, and {name} has only one epsilon", "set policy.privacy.epsilon"
        )
    if not 0 < given <= 1e9:
        raise SettingError(where, *epsilon_problem(given))
    check_weak(given, where, privacy)
    return given


def _spread(table: EstimatorTable, use: HybridUse) -> tuple[int | None, int | None, int]:
    """Return sigma, sigma_local and mean_gap in milli-units. Default: local users have the same distribution."""
    if not use.spread:
        return None, None, 0
    if table.sigma is None:
        raise SettingError(
            f"{_ESTIMATOR}.sigma",
            f"is missing, and {table.name} requires it",
            "write the standard deviation of users' means, in the unit of readings and from another source; or use pwh",
        )
    values = {key: getattr(table, key) for key in _SPREAD}
    for key, value in values.items():
        if value is not None and not abs(value) <= 1e6:  # inf and nan too
            raise SettingError(f"{_ESTIMATOR}.{key}", f"{value:g} is too large", "use at most 1e+06")
    sigma = to_milli(table.sigma, "km/h")
    local = sigma if table.sigma_local is None else to_milli(table.sigma_local, "km/h")
    return sigma, local, 0 if table.mean_gap is None else to_milli(table.mean_gap, "km/h")


def _check_charge(keys: HybridKeys, privacy: PrivacyTable) -> None:
    """Check the charge of a release as `check_privacy` checks epsilon."""
    charged, where = keys.charged(privacy.epsilon), f"{_PRIVACY}.local_epsilon"
    if nano_ceil(charged) * privacy.max_hats_per_day > 2**62 or not math.isfinite(charged):
        raise SettingError(where, *epsilon_problem(charged))
    if charged > privacy.daily_limit:
        raise SettingError(
            where,
            f"{charged:g} is above daily_limit {privacy.daily_limit:g}, so nothing could be released",
            "raise daily_limit or lower local_epsilon",
        )
