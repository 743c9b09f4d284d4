"""Formats for a policy: with its values, its time zone for times without an offset, and derived speeds."""

from typing import Final

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.formats import Format, FormatChoice
from hatcast.stream.readings.positions import Derivation
from hatcast.stream.time_zones import time_zone

_FASTEST_MILLI: Final = 150_000  # km/h, under reject_above = "none": as its default


def policy_format(choice: FormatChoice, policy: Policy, *, live: bool = False) -> Format:
    """Return a chosen format for the readings that a policy folds.

    live   it decodes single records, such as messages, and not only recordings
    Raises SettingError if its records do not have the policy's values, its columns cannot be used, or speeds cannot be
    derived.
    """
    feed = choice.format(policy.value_units, time_zone(policy.timezone), live=live)
    if choice.header_time and policy.relation is Relation.ADD_REMOVE:
        raise SettingError(
            "header_time", "a header's time may follow from other vehicles, which add_remove hides", "leave it out"
        )
    if choice.derive is None:
        return feed
    if policy.value_units.single is not None:
        raise SettingError("derive_speed", "the policy releases another value than the speed", "leave it out")
    fastest = policy.reject_above
    if fastest is None:
        fastest = max(policy.upper_bound, _FASTEST_MILLI)
    always = choice.derive == "always"
    return feed.with_derived_speeds(Derivation(policy.timezone, fastest / 1000, policy.max_ahead_ms, always))
