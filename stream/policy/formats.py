"""Formats for a policy: with its values, and with its time zone for times without an offset."""

from zoneinfo import ZoneInfo

from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Format, FormatChoice


def policy_format(choice: FormatChoice, policy: Policy) -> Format:
    """Return a chosen format for the readings that a policy folds.

    Raises SettingError if its records do not have the policy's values, or its columns cannot be used.
    """
    return choice.format(policy.value_units, ZoneInfo(policy.timezone))
