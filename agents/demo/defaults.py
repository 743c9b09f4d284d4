"""Defaults of the demo: policies for the synthetic city and for recordings, and settings for embedded services."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hatcast.agents.config.settings import KafkaTable, RedisTable, Settings, load_settings, parse_settings
from hatcast.agents.config.tables import DisplayTable, TopicsTable, display_settings
from hatcast.agents.demo.embedded import PARTITIONS, Addresses
from hatcast.agents.device.fold import Rules
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.formats import FormatChoice
from hatcast.stream.units import DAY_MS

TOPICS: Final = TopicsTable(telemetry_retention="none")
VEHICLES: Final = 300  # in the synthetic city
SPEEDUP: Final = 600.0  # an hour in 6 s
HYBRID_VEHICLES: Final = 600  # devices need company: the noise of one is wider than all speeds
HYBRID_SPEEDUP: Final = 300.0  # of that city: as many readings a second
WHOLE_RECORDING_S: Final = 60.0  # a recording of more than 10 hours is sent faster, to take about this long
CITY_AGE_MS: Final = 30 * DAY_MS  # the city's time starts this long ago: at this pace it lasts over an hour
CITY_HOUR: Final = "08:00"
SHARE: Final = 0.1  # of the buses that trust the operator, of a hybrid policy: c of the paper    [H 2.2]
MAP_HOST: Final = "127.0.0.1"
MAP_PORT: Final = 8080
MAP: Final = DisplayTable(title="Bus speeds, hour by hour")

_CHECKPOINT_S: Final = 0.25
_CITY_ZONE: Final = "Asia/Kolkata"
RECORDED_ZONES: Final[Mapping[str, str]] = {
    "itms": "Asia/Kolkata",
    "hfp": "Europe/Helsinki",
    "capmetro": "America/Chicago",
}  # by format of a recording


def demo_settings(
    addresses: Addresses,
    config: Path | None,
    choice: FormatChoice | None,
    *,
    hybrid: bool = False,
    display: DisplayTable = MAP,
    timetable: Path | None = None,
) -> Settings:
    """Return settings for the embedded services. Of the file `config`, only [policy] is used.

    choice      format of the recording; None: the synthetic city
    hybrid      the policy has to take reports of devices
    display     of the map; relative names of files start at the working directory
    timetable   of the tracker of the default policy; None: it has none
    Raises HatcastError if the file cannot be read or its policy is invalid.
    """
    if config is not None:
        given = load_settings(config, environment={})
    else:
        feed_format = None if choice is None else choice.name
        policy = hybrid_policy(feed_format) if hybrid else demo_policy(feed_format)
        if timetable is not None and not hybrid:
            policy |= {"tracker": {"timetable": str(timetable.resolve())}}
        given = parse_settings({"policy": policy}, Path(), {})
    if given.policy.relation is Relation.ADD_REMOVE:
        raise HatcastError(
            f"policy {given.policy.name!r} releases hours from its first start on only (add_remove), and the demo's"
            " readings are of the past: release recordings with `hatcast batch --ledger`, or demo a policy with"
            ' relation = "replace"'
        )
    if hybrid or given.policy.takes_reports:
        Rules(given.policy, None)  # raises now what would otherwise fail in the devices
    return dataclasses.replace(
        given,
        kafka=KafkaTable(bootstrap_servers=addresses.kafka, partitions=PARTITIONS),
        redis=RedisTable(url=addresses.redis),
        topics=TOPICS,
        checkpoint_interval_s=_CHECKPOINT_S,
        retention_ms=None,
        kafka_password=None,
        redis_password=None,
        user_key=None,
        listen=None,
        display=display_settings(display, Path()),
    )


def demo_policy(feed_format: str | None) -> dict[str, Any]:
    """Return the default [policy]: a tracker, for all hours of the day, with running means.

    The synthetic city has larger hexagons than a recording: 300 buses are few for a city.
    """
    zone = _CITY_ZONE if feed_format is None else RECORDED_ZONES.get(feed_format, "UTC")
    return {
        "name": "demo",
        "upper_bound": 65.0,
        "timezone": zone,
        "h3_resolution": 6 if feed_format is None else 7,
        "hours": [0, 24],
        "privacy": {"daily_limit": 5.0},
        "estimator": {"name": "tracker"},
        "running": [{"name": "today", "window": "today"}, {"name": "24h", "window": "24h"}],
    }


def hybrid_policy(feed_format: str | None) -> dict[str, Any]:
    """Return the default [policy] of `--hybrid`: `pwh`, which has to know nothing about the city.

    The hexagons are larger than a tracker's: a device's noise is hidden only by many other devices.
    """
    return demo_policy(feed_format) | {
        "name": "demo-hybrid",
        "h3_resolution": 6,
        "privacy": {"epsilon": 1.0, "local_epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 89.0},
        "estimator": {"name": "pwh"},
    }


def city_start_ms(now_ms: int, policy: Policy) -> int:
    """Return the start of the city's time (ms UTC): `CITY_HOUR` of the day `CITY_AGE_MS` ago."""
    from hatcast.stream.fold.calendar import Calendar

    calendar = Calendar(policy)
    past = now_ms - CITY_AGE_MS
    slot = calendar.slot_named(calendar.local(past).date().isoformat(), CITY_HOUR)
    return past if slot is None else slot.start_ms
