"""A first hatcast.toml: what a few answers come to, with remarks for whoever reads it next."""

import os
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from hatcast.agents.config.settings import Settings, settings_of
from hatcast.stream.errors import HatcastError
from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.hybrid import HYBRID_KEYS
from hatcast.stream.policy.estimator_keys import Relation
from hatcast.stream.units import NANO, nano

# Those that hide speeds and need no key that only its own documents explain. The others: docs/estimators.md.
FIRST_ESTIMATORS: Final = tuple(
    name
    for name, keys in {**ESTIMATOR_KEYS, **HYBRID_KEYS}.items()
    if Relation.REPLACE in keys.relations
    and None not in keys.defaults.values()
    and not (keys.hybrid is not None and keys.hybrid.spread)
)
_LOCALTIME: Final = Path("/etc/localtime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a first file has to say. Speeds in km/h; daily_limit None: as much as all HATs of a bus's day cost."""

    name: str = "bus-speeds"
    timezone: str
    upper_bound: float = 65.0
    epsilon: float = 1.0
    max_hats_per_day: int = 89
    daily_limit: float | None = None
    estimator: str = "array_averaging"
    kafka: str = "localhost:9092"
    redis: str = "redis://localhost:6379/0"
    telemetry_format: str = "jsonl"

    @property
    def limit(self) -> float:
        """`daily_limit`, or its default."""
        if self.daily_limit is not None:
            return self.daily_limit
        if not 0 < self.epsilon <= 1e9:  # which is refused, with the key
            return self.epsilon
        return self.max_hats_per_day * nano(self.epsilon) / NANO


def text_of(answers: Answers) -> str:
    """The file."""
    kafka = _line("bootstrap_servers", answers.kafka, "HATCAST_KAFKA_BOOTSTRAP_SERVERS overrides it")
    redis = _line("url", answers.redis, "HATCAST_REDIS_URL overrides it")
    form = _line("telemetry_format", answers.telemetry_format, "what a record is: docs/feeds.md")
    name = _line("name", answers.name, "")
    bound = _line("upper_bound", answers.upper_bound, "km/h; larger values count as this. The noise grows with it")
    zone = _line("timezone", answers.timezone, "a day, and its budget, is a day there")
    epsilon = _line("epsilon", answers.epsilon, "of one release; less hides more and adds more noise")
    hats = _line("max_hats_per_day", answers.max_hats_per_day, "of one bus; further ones of its day are not counted")
    limit = _line("daily_limit", answers.limit, "of one bus's day, all releases together")
    estimator = _line("name", answers.estimator, "docs/estimators.md; hatcast evaluate compares them")
    return f"""\
# What hatcast promises, and where it finds Kafka and Redis. Written by `hatcast init`; yours to change.
# Keys that are left out have the defaults of docs/configuration.md. Passwords: in *_file keys or the environment.

[kafka]
{kafka}

[redis]
{redis}

[topics]
telemetry = "telemetry"               # key = vehicle id, one reading a record
{form}
telemetry_retention = "72h"           # when hatcast makes the topic; "none" to replay recordings into it

# Every key of [policy] is part of the promise, public, and hashed into the policy_id of each release. A policy does
# not change once a worker has started under its name: write another one then, which `replaces` it.
[policy]
{name}
{bound}
{zone}
hours = [9, 21]                       # slots that start from 09:00 to 20:00 are released
h3_resolution = 7                     # hexagons of about 5 km2; those of 8 are a seventh, with more noise

# How to choose these three: docs/choosing.md. In words: hatcast budget --explain
[policy.privacy]
{epsilon}
{hats}
{limit}

[policy.estimator]
{estimator}
"""


def _line(key: str, value: str | float, remark: str) -> str:
    """A key, with the remark where the others are."""
    return f"{f'{key} = {_toml(value)}':37} # {remark}" if remark else f"{key} = {_toml(value)}"


def checked(text: str, folder: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings that a file of this text in `folder` would have. Raises SettingError, as loading it would."""
    return settings_of(tomllib.loads(text), folder.resolve(), environment)


def write_first(text: str, path: Path, *, force: bool) -> None:
    """Write it whole or not at all. Raises HatcastError where there is such a file already, unless `force`, or no folder."""
    part = None
    try:
        descriptor, part = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o644)
            file.write(text)
        if force:
            Path(part).replace(path)
        else:
            os.link(part, path)  # fails where there is a file, also one that was made meanwhile
    except FileExistsError:
        raise HatcastError(
            f"{path} is there already: name another with --config, or overwrite it with --force"
        ) from None
    except OSError as error:
        raise HatcastError(
            f"{path} cannot be written ({error.strerror or error}): name another with --config"
        ) from None
    finally:
        if part is not None:
            Path(part).unlink(missing_ok=True)


def zone_of_machine(environment: Mapping[str, str] = os.environ) -> str | None:
    """The name of this machine's time zone, where it is known."""
    named = environment.get("TZ", "").lstrip(":")
    if "/" in named and not named.startswith("/"):
        return named
    with suppress(OSError):
        _, found, zone = str(_LOCALTIME.resolve()).rpartition("/zoneinfo/")
        if found and "/" in zone:
            return zone
    return None


def _toml(value: str | float) -> str:
    """A value as TOML writes it; JSON's strings are TOML's, but for one character."""
    if isinstance(value, str):
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    return repr(value)
