"""Template of hatcast.toml, filled in from a few answers and commented."""

import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from hatcast.agents.config.settings import Settings, parse_settings
from hatcast.stream.errors import HatcastError
from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.hybrid import HYBRID_KEYS
from hatcast.stream.policy.estimator_keys import Relation
from hatcast.stream.policy.tracker_keys import TRACKER
from hatcast.stream.units import NANO, nano_ceil

# The tracker, and estimators for `replace` without required keys of their own. The others: docs/estimators.md.
TEMPLATE_ESTIMATORS: Final = (
    TRACKER,
    *(
        name
        for name, keys in {**ESTIMATOR_KEYS, **HYBRID_KEYS}.items()
        if Relation.REPLACE in keys.relations
        and None not in keys.defaults.values()
        and not (keys.hybrid is not None and keys.hybrid.spread)
    ),
)
# The smallest total whose live numbers are better than what everybody knows    [decisions/0072]
_TRACKER_LIMIT: Final = 2.0
_TRACKER_REMARKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "share": "of daily_limit, for queries as each hour closes; the rest is for the day's end",
        "objective": "what the day's end makes accurate: every hexagon alike",
        "price": "error that one unit of a bus's epsilon must save, in the unit of means",
        "timetable": "hexagons are expected at about their scheduled speeds; a new file may take its place",
    }
)
MOVING, JOURNEY = "moving", "journey"  # speeds to choose from
_LOCALTIME: Final = Path("/etc/localtime")


class AskedValue(NamedTuple):
    """A value other than the speed. usual: two numbers, or empty."""

    name: str
    unit: str
    lower: float
    upper: float
    usual: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateAnswers:
    """Values for the template. Speeds in km/h."""

    name: str = "bus-speeds"
    timezone: str
    upper_bound: float = 65.0
    hours: tuple[int, int] = (9, 21)
    estimator: str = TRACKER
    # epsilon, max_hats_per_day: not of a tracker, which spends `daily_limit` where it helps most
    epsilon: float = 1.0
    max_hats_per_day: int = 89
    daily_limit: float | None = None  # None: 2 of a tracker, else the charge of `max_hats_per_day` HATs
    tracker: Mapping[str, str | float] = field(default_factory=dict)  # keys of [policy.tracker]; empty: the defaults
    kafka: str = "localhost:9092"
    redis: str = "redis://localhost:6379/0"
    telemetry_format: str = "jsonl"
    telemetry_retention: str = "72h"
    value: AskedValue | None = None  # None: the speed
    # speed, min_interval: which speed; the usual interval of a vehicle's reports, of a journey speed
    speed: str = MOVING
    min_interval: str = "30s"
    gtfs: str | None = None  # timetable of the map and of a tracker of speeds; None: none

    @property
    def limit(self) -> float:
        """`daily_limit`, or its default."""
        if self.daily_limit is not None:
            return self.daily_limit
        if self.estimator == TRACKER:
            return _TRACKER_LIMIT
        if not 0 < self.epsilon <= 1e9:  # checking the file rejects it, and names the key
            return self.epsilon
        return self.max_hats_per_day * nano_ceil(self.epsilon) / NANO


def render_template(answers: TemplateAnswers) -> str:
    """Return the file's text."""
    kafka = _line("bootstrap_servers", answers.kafka, "HATCAST_KAFKA_BOOTSTRAP_SERVERS overrides it")
    redis = _line("url", answers.redis, "HATCAST_REDIS_URL overrides it")
    form = _line("telemetry_format", answers.telemetry_format, "format of the records: docs/feeds.md")
    remark = 'if hatcast creates the topic; "none" to replay recordings into it'
    retention = _line("telemetry_retention", answers.telemetry_retention, remark)
    name = _line("name", answers.name, "")
    bound = ""
    if answers.value is None:
        line = _line("upper_bound", answers.upper_bound, "km/h; larger values count as this. The noise grows with it")
        bound = f"{line}\n"
    zone = _line("timezone", answers.timezone, "days and their budgets are local days there")
    first, end = answers.hours
    hours = _line("hours", [first, end], f"slots that start from {first:02}:00 to {end - 1:02}:00 are released")
    privacy = "\n".join(_privacy_lines(answers))
    return f"""\
# Privacy policy, and addresses of Kafka and Redis. Written by `hatcast init`; edit it as you like.
# Omitted keys have the defaults of docs/configuration.md. Passwords: in *_file keys or the environment.

[kafka]
{kafka}

[redis]
{redis}

[topics]
telemetry = "telemetry"               # key = vehicle id, one reading per record
{form}
{retention}

{_display_lines(answers.gtfs)}

# Every key of [policy] is part of the privacy guarantee, public, and hashed into the policy_id of each release. Once
# a worker has started with a policy, the policy cannot change: write a new one, which `replaces` it.
[policy]
{name}
{bound}{zone}
{hours}
h3_resolution = 7                     # hexagons of about 5 km2; 8: a seventh of that, with more noise
{_speed_lines(answers)}{_value_lines(answers)}
{privacy}
"""


def _display_lines(gtfs: str | None) -> str:
    """Return the table [display]; without a timetable it is a comment."""
    mark = "# " if gtfs is None else ""
    return "\n".join(
        (
            "# Stops and streets on the map: docs/map.md has the one command that cuts a city out of a free map.",
            f"{mark}[display]",
            f"{mark}gtfs = {_toml(gtfs or 'timetable.zip')}",
            '# basemap = "city.pmtiles"',
        )
    )


def _speed_lines(answers: TemplateAnswers) -> str:
    """Return the keys that say which speed it is; empty for another value."""
    if answers.value is not None:
        return ""
    if answers.speed != JOURNEY:
        return _line("drop_zero", value=True, remark="speed while moving: readings of exactly 0 do not count") + "\n"
    remark = "the usual interval of reports: each minute of a bus counts once"
    return (
        _line("drop_zero", value=False, remark="journey speed: standing counts too, as distance over time") + "\n"
        f"{_line('min_interval', answers.min_interval, remark)}\n"
    )


def _value_lines(answers: TemplateAnswers) -> str:
    """Return the table [policy.value]; empty for speeds."""
    if answers.value is None:
        return ""
    remark = "where about 95 of 100 values are"
    name, unit, lower, upper, usual = answers.value
    lines = (
        "",
        "[policy.value]",
        _line("name", name, "of the field in jsonl records, or value: docs/feeds.md"),
        _line("unit", unit, "of that field, of the bounds below and of releases"),
        _line("lower", lower, "smaller values count as this"),
        _line("upper", upper, "larger values count as this. The noise grows with upper - lower"),
        _line("usual", usual, remark)
        if usual
        else f"# usual = [.., ..]                    # {remark}, if that is known: docs/estimators.md",
        "",
    )
    return "\n".join(lines)


def _privacy_lines(answers: TemplateAnswers) -> Iterator[str]:
    """Yield the lines of [policy.privacy] and of the tables of the estimator."""
    if answers.estimator == TRACKER:
        yield "# How to choose it: docs/choosing.md. What it means: hatcast budget explain"
        yield "[policy.privacy]"
        yield _line("daily_limit", answers.limit, "epsilon: the most that one bus can lose on a day, of everything")
    else:
        yield "# How to choose these three: docs/choosing.md. What they mean: hatcast budget explain"
        yield "[policy.privacy]"
        yield _line("epsilon", answers.epsilon, "of one release; a smaller one hides more and adds more noise")
        yield _line("max_hats_per_day", answers.max_hats_per_day, "of one bus; more HATs of its day are not counted")
        yield _line("daily_limit", answers.limit, "of one bus's day, over all releases")
    yield ""
    yield "[policy.estimator]"
    if answers.estimator != TRACKER:
        yield _line("name", answers.estimator, "docs/estimators.md; hatcast evaluate compares them")
        return
    yield _line("name", answers.estimator, "few queries for estimates of every hexagon: docs/choosing.md")
    timetable = {} if answers.gtfs is None or answers.value is not None else {"timetable": answers.gtfs}
    if keys := {**answers.tracker, **timetable}:
        yield ""
        yield f"{'[policy.tracker]':37} # found by hatcast plan" if answers.tracker else "[policy.tracker]"
        yield from (_line(key, value, _TRACKER_REMARKS.get(key, "")) for key, value in keys.items())


def _line(key: str, value: str | Sequence[float] | float, remark: str) -> str:
    """Return a TOML line, with its comment aligned to the others."""
    return f"{f'{key} = {_toml(value)}':37} # {remark}" if remark else f"{key} = {_toml(value)}"


def relative_path(path: Path, folder: Path) -> str:
    """Return the path as a configuration in this folder names it: relative, unless it was given from the root."""
    return str(path) if path.is_absolute() else os.path.relpath(path, folder)


def parse_template(text: str, folder: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of this text as a file in `folder`. Raises SettingError."""
    return parse_settings(tomllib.loads(text), folder.resolve(), environment)


def write_template(text: str, path: Path, *, force: bool) -> None:
    """Write the file atomically. Raises HatcastError if it exists and not `force`, or if its folder is missing."""
    part = None
    try:
        descriptor, part = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o644)
            file.write(text)
        if force:
            Path(part).replace(path)
        else:
            os.link(part, path)  # fails if the file exists, even if it was created meanwhile
    except FileExistsError:
        raise HatcastError(f"{path} exists already: name another with --config, or overwrite it with --force") from None
    except OSError as error:
        raise HatcastError(
            f"{path} cannot be written ({error.strerror or error}): name another with --config"
        ) from None
    finally:
        if part is not None:
            Path(part).unlink(missing_ok=True)


def machine_timezone(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the name of this machine's time zone; None if it is unknown."""
    named = environment.get("TZ", "").lstrip(":")
    if "/" in named and not named.startswith("/"):
        return named
    with suppress(OSError):
        _, found, zone = str(_LOCALTIME.resolve()).rpartition("/zoneinfo/")
        if found and "/" in zone:
            return zone
    return None


def _toml(value: str | Sequence[float] | float) -> str:
    """Return a value in TOML; JSON strings are TOML strings, except for one character."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    return repr(value)
