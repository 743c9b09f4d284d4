"""Configuration of the benchmarks: the defaults, except what a benchmark has to change."""

from pathlib import Path
from typing import Final

from tests.services import KafkaServer, RedisServer

PARTITIONS: Final = 8

_TEXT: Final = """\
[kafka]
bootstrap_servers = "{kafka}"
partitions = {partitions}
[redis]
url = "{redis}"
[topics]
telemetry = "{topic}"
telemetry_format = "itms"
telemetry_retention = "none"
means = "{topic}.means"
queries = "{topic}.queries"
budget = "{topic}.budget"
estimates = "{topic}.estimates"
dead_letters = "{topic}.dead-letters"
[worker]
session_timeout = "{session}"
[policy]
name = "{name}"
upper_bound = 65.0
timezone = "Asia/Kolkata"
min_interval = "10s"
lateness = "{lateness}"
hours = [{hours}]
[policy.privacy]
epsilon = 1.0
"""
_HATS: Final = """\
max_hats_per_day = {cap}
daily_limit = {limit}
[policy.estimator]
name = "{estimator}"
"""
_RUNNING: Final = """\
[policy.continual]
kind = "{continual}"
horizon_days = 7
max_slots = 24
max_cells = 20
"""

_DEFAULTS: Final[dict[str, str | int]] = {
    "topic": "bench",
    "lateness": "48h",
    "hours": "9, 21",
    "cap": 89,
    "limit": 105,
    "estimator": "array_averaging",
    "partitions": PARTITIONS,
    "session": "10s",
}


def write_settings(
    path: Path,
    kafka: KafkaServer,
    redis: RedisServer,
    name: str,
    **changed: str | int,
) -> Path:
    """Write hatcast.toml with the default checkpoint interval, 1 s, and `min_interval` 10 s; return its path.

    changed   with `continual`, a kind of running sums, instead of an estimator
    """
    given = {**_DEFAULTS, **changed}
    text = _TEXT + (_RUNNING if "continual" in changed else _HATS)
    path.write_text(text.format(kafka=kafka.bootstrap_servers, redis=redis.url, name=name, **given))
    return path
