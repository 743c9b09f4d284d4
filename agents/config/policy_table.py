"""Read `[policy]`, and check what would otherwise fail when the first slot closes."""

from collections.abc import Callable, Mapping
from typing import Any

from hatcast.stream.estimators import ESTIMATOR_KEYS, Parameters
from hatcast.stream.estimators.values import values_form
from hatcast.stream.hybrid import HYBRID_ESTIMATORS, HYBRID_KEYS, HybridParameters, check
from hatcast.stream.policy.policy import ContinualKeys, HybridKeys, Policy, ValuesKeys, read_policy
from hatcast.stream.policy.tracker_keys import TRACKER_ESTIMATOR
from hatcast.stream.readings.formats import format_with


def policy_of_table(table: Mapping[str, Any], telemetry_format: str, read_cells: Callable[[str], str]) -> Policy:
    """Return the policy of a table.

    telemetry_format   name of the format of telemetry, which must have the values that the policy releases
    read_cells         returns the text of a file of cells that a key names
    Raises SettingError with the key, the problem and the fix.
    """
    policy = read_policy(table, {**ESTIMATOR_KEYS, **HYBRID_KEYS, **TRACKER_ESTIMATOR}, read_cells)
    Parameters.of(policy)
    format_with(telemetry_format, policy.value_units)
    match policy.method:
        case ValuesKeys():
            values_form(policy)
        case HybridKeys():
            check(HYBRID_ESTIMATORS[policy.estimator], HybridParameters.of(policy))
        case ContinualKeys(kind=kind):
            from hatcast.stream.continual import check as check_sums
            from hatcast.stream.release.continual import setting_of

            check_sums(kind, setting_of(policy))
    return policy
