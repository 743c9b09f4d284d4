"""`hatcast init`: write a first hatcast.toml."""

import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hatcast.agents.cli import laboratory
from hatcast.agents.cli.options import EXISTING_FILE, PATH, config_option, parsed
from hatcast.agents.cli.recordings import checked_format, format_options
from hatcast.agents.clock import now_ms
from hatcast.agents.config.template import (
    JOURNEY,
    MOVING,
    TEMPLATE_ESTIMATORS,
    AskedValue,
    TemplateAnswers,
    machine_timezone,
    parse_template,
    relative_path,
    render_template,
    write_template,
)
from hatcast.agents.timetable.speeds import timetable_of
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.policy.tracker_keys import TRACKER
from hatcast.stream.readings.formats import FORMATS, FormatChoice
from hatcast.stream.tracker.timetable import Timetable

_DEFAULTS = TemplateAnswers(timezone="")
_QUESTIONS = {
    "name": "Name of the policy",
    "timezone": "Time zone of the city, such as Asia/Kolkata",
    "hours": "Hours of the day that are released: the first, and the one at which they end",
    "speed": "Which speed: journey counts standing buses, so that a mean is distance over time; moving leaves them out,"
    " as the papers do",
    "min_interval": "How often a bus usually reports, such as 30s",
    "upper_bound": "Upper bound of speeds, km/h",
    "estimator": "Estimator: tracker gives estimates of every hexagon at a small total; the others release each mean by"
    f" itself ({', '.join(TEMPLATE_ESTIMATORS)})",
    "epsilon": "Epsilon of one release; smaller hides more",
    "max_hats_per_day": "K, most hexagons and hours of a bus's day that count",
    "daily_limit": "Most epsilon that a bus can lose on a day; smaller hides more",
    "kafka": "Bootstrap servers of Kafka",
    "redis": "URL of Redis",
    "telemetry_format": f"Format of the telemetry ({', '.join(FORMATS)})",
    "telemetry_retention": "Retention of the telemetry, 72h or more; none to replay old recordings",
}
_OF_RELEASES = ("epsilon", "max_hats_per_day")  # keys that a tracker does not have
_MARGIN_DEGREES = 0.02  # about 2 km
_PLAIN_ESTIMATOR = "array_averaging"  # if one of them is given, and no estimator


def _hours(text: str) -> tuple[int, int]:
    first, end = (int(part) for part in text.split(","))
    return first, end


def _value(text: str) -> AskedValue:
    name, unit, *bounds = (part.strip() for part in text.split(","))
    lower, upper, *usual = map(float, bounds)
    return AskedValue(name, unit, lower, upper, [*usual])


@click.command(epilog="Example:  hatcast init --timezone Europe/Helsinki --daily-limit 2 --yes")
@config_option
@click.option("--name", help=f"Name of the policy.  [default: {_DEFAULTS.name}]")
@click.option(
    "--timezone", help="Time zone of the city, such as Asia/Kolkata.  [default on a terminal: this machine's]"
)
@click.option(
    "--hours",
    callback=parsed(_hours, 'write two hours, such as "0,24"'),
    metavar="FIRST,END",
    help="Hours of the day that are released: slots that start at FIRST or later, and before END.  [default: 9,21]",
)
@click.option(
    "--speed",
    type=click.Choice([MOVING, JOURNEY]),
    help="journey: standing counts too. moving: readings of exactly 0 are left out, as in the papers.  [default:"
    " journey, without the tracker moving]",
)
@click.option(
    "--min-interval",
    metavar="DURATION",
    help="Of journey: how often a bus usually reports, so that each minute of it counts once.  [default: 30s; with"
    " --recording as found there]",
)
@click.option("--upper-bound", type=float, metavar="KM/H", help="U: higher speeds are clipped to it.  [default: 65]")
@click.option(
    "--value",
    callback=parsed(_value, 'write name, unit and bounds, such as "delay,s,-600,3600"'),
    metavar="NAME,UNIT,LOWER,UPPER[,FROM,TO]",
    help='A value to release instead of the speed, such as "delay,s,-600,3600,-120,300", with where about 95 of 100'
    " values are, if that is known: [policy.value].",
)
@click.option(
    "--daily-limit",
    type=float,
    metavar="EPSILON",
    help="The most that one bus can lose on a day, of everything that is published.  [default: 2; without the tracker"
    " K x epsilon]",
)
@click.option(
    "--recording",
    "recordings",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="A recorded day of the city: chooses the keys as `hatcast plan tracker` does. Repeatable.",
)
@format_options(files="recordings", of="recordings, if any, and of the telemetry, which `hatcast feed` sends as jsonl")
@click.option(
    "--gtfs",
    type=EXISTING_FILE,
    metavar="FILE",
    help="The city's GTFS timetable (zip): the tracker expects hexagons at about their scheduled speeds, and the map"
    " names places by its stops. Prints how to get streets, too.",
)
@click.option(
    "--estimator",
    type=click.Choice(TEMPLATE_ESTIMATORS),
    help="tracker: estimates at a small total; the others release each mean by itself.  [default: tracker, or"
    " array_averaging with --epsilon or --max-hats]",
)
@click.option("--epsilon", type=float, help="Without the tracker: epsilon of one release.  [default: 1]")
@click.option(
    "--max-hats",
    "max_hats_per_day",
    type=int,
    help="Without the tracker: K, most hexagons and hours of a bus's day.  [default: 89]",
)
@click.option("--kafka", help="Bootstrap servers.  [default: localhost:9092]")
@click.option("--redis", help="URL of the Redis server.  [default: redis://localhost:6379/0]")
@click.option(
    "--retention",
    "telemetry_retention",
    metavar="DURATION",
    help="Retention of the telemetry topic; none keeps what `hatcast feed replay` sends from old recordings.  [default:"
    " 72h; none with --recording]",
)
@click.option(
    "--yes", "-y", is_flag=True, help="Ask nothing: use defaults for missing options. Implied without a terminal."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--check-services", is_flag=True, help="Then run `hatcast doctor` on the file.")
def command(  # noqa: PLR0913 - options by name
    *,
    config: Path,
    yes: bool,
    force: bool,
    check_services: bool,
    recordings: tuple[Path, ...],
    gtfs: Path | None,
    feed_format: FormatChoice | None,
    **given: Any,
) -> None:
    """Write a first hatcast.toml with comments, after a few questions, and check it.

    On a terminal it asks for the values without an option. Elsewhere, or with --yes, these have their defaults;
    --timezone is then required. A file with an error is not written.
    """
    if config.exists() and not force:  # before the questions
        raise HatcastError(f"{config} exists already: name another file with --config, or overwrite it with --force")
    given["telemetry_format"] = _telemetry_format(feed_format, recordings)
    _check_usage(given, recordings, feed_format)
    streets = None
    if gtfs is not None:
        streets = _streets_command(gtfs)
        given["gtfs"] = relative_path(gtfs, config.parent)
    if feed_format is not None and recordings:
        _read_off(recordings, feed_format, given)
    answers = _ask(given, config.parent) if _on_terminal() and not yes else _from_options(given)
    try:
        if feed_format is not None and recordings:
            answers = replace(answers, tracker=_planned(answers, config.parent, recordings, feed_format))
        text = render_template(answers)
        policy = parse_template(text, config.parent).policy
        timetable = timetable_of(policy, partial(click.echo, err=True))
    except SettingError as error:
        raise HatcastError(f"{config} is not written: {error}") from None
    write_template(text, config, force=force)
    click.echo(f"wrote {config}: policy {policy.name}, {policy.policy_id}")
    each = answers.limit if answers.estimator == TRACKER else answers.max_hats_per_day * answers.epsilon
    cost = min(each, answers.limit)
    click.echo(f"A bus's day can lose up to epsilon {cost:g}; explanation: hatcast budget explain{_at(config)}")
    _print_cautions(answers, timetable)
    if streets is not None:
        click.echo(
            f"For streets on the map, with the program pmtiles, which fetches this part only: {streets}\nThen write"
            f' basemap = "city.pmtiles" below [display] of {config}'
        )
    if check_services:
        from hatcast.agents.cli.doctor import command as doctor

        click.get_current_context().invoke(doctor, config=config, as_json=False)
    else:
        words = [] if feed_format is None or not recordings else [*map(str, recordings), *feed_format.words]
        files = shlex.join(words) or "FILE"
        click.echo(f"Next, for files: hatcast batch {files} --ledger {config.stem}.ledger{_at(config)}")
        click.echo(f"Next, for Kafka: hatcast doctor{_at(config)}")


def _print_cautions(answers: TemplateAnswers, timetable: Timetable | None) -> None:
    if timetable is not None:
        click.echo(f"Estimates of {len(timetable.speeds):,} hexagons begin with their scheduled speeds")
    if answers.telemetry_format != _DEFAULTS.telemetry_format:
        click.echo(
            f"Workers expect {answers.telemetry_format} on topic telemetry. If `hatcast feed` is to send, which sends"
            f" {_DEFAULTS.telemetry_format}, set telemetry_format to that"
        )
    if answers.telemetry_retention == "none":
        click.echo(
            'Kafka keeps all telemetry (telemetry_retention = "none"): set 72h or more before live telemetry is sent'
        )


def _telemetry_format(choice: FormatChoice | None, recordings: tuple[Path, ...]) -> str | None:
    """Return the format of the telemetry: --format, if it is one; else that of feeds. None: it is not known yet."""
    source = click.get_current_context().get_parameter_source("feed_format")
    if choice is None or (recordings and source is not ParameterSource.COMMANDLINE):
        return _DEFAULTS.telemetry_format if recordings else None
    if choice.name not in FORMATS and not recordings:
        raise click.UsageError(f"{choice.name} is a format of files: give --recording, or leave --format out")
    # A worker decodes records one by one: only feeds derive speeds, and read named columns.
    return choice.name if choice == FormatChoice(choice.name) and choice.name in FORMATS else _DEFAULTS.telemetry_format


def _check_usage(given: dict[str, Any], recordings: tuple[Path, ...], choice: FormatChoice | None) -> None:
    if choice is not None and choice.derive is not None and not recordings:
        raise click.UsageError("--derive-speed is for --recording: give both")
    if choice is not None and choice != FormatChoice(choice.name, derive=choice.derive) and not recordings:
        raise click.UsageError("options of columns and --header-time are for --recording: give both")
    if given["value"] is not None and given["upper_bound"] is not None:
        raise click.UsageError("--value has its own bounds: leave --upper-bound out")
    if given["value"] is not None and given["speed"] is not None:
        raise click.UsageError("--speed is for speeds: leave it out with --value")
    if given["min_interval"] is not None and _speed_of(given) != JOURNEY:
        raise click.UsageError("--min-interval is for --speed journey: give both")
    if given["estimator"] == TRACKER and any(given[key] is not None for key in _OF_RELEASES):
        raise click.UsageError(
            "a tracker has no epsilon of a release and no K: leave --epsilon and --max-hats out, or name another"
            " --estimator"
        )
    if recordings and _estimator_of(given) != TRACKER:
        raise click.UsageError("--recording chooses the keys of a tracker: leave it out, or use --estimator tracker")


def _estimator_of(given: dict[str, Any]) -> str:
    """Return the estimator, or its default beside the other options."""
    if given.get("estimator") is not None:
        return str(given["estimator"])
    return _PLAIN_ESTIMATOR if any(given.get(key) is not None for key in _OF_RELEASES) else TRACKER


def _speed_of(given: dict[str, Any]) -> str:
    """Return the speed, or its default: the papers leave standing buses out."""
    if given.get("speed") is not None:
        return str(given["speed"])
    return JOURNEY if given.get("value") is None and _estimator_of(given) == TRACKER else MOVING


def _planned(
    answers: TemplateAnswers, folder: Path, recordings: tuple[Path, ...], choice: FormatChoice
) -> dict[str, str | float]:
    """Return the keys of [policy.tracker] for the policy of the answers, and print the errors to expect."""
    policy = parse_template(render_template(answers), folder).policy
    feed = checked_format(choice, policy, recordings)
    keys: dict[str, str | float] = laboratory("cli.plan").tracker_keys(recordings, feed, policy, answers.limit)
    return keys


def _read_off(recordings: tuple[Path, ...], choice: FormatChoice, given: dict[str, Any]) -> None:
    """Set what follows from recordings: retention, time zone, and how often a vehicle of the first one reports."""
    from hatcast.agents.cli.check import sample_of, usual_interval
    from hatcast.agents.demo.defaults import RECORDED_ZONES

    if given["timezone"] is None:
        given["timezone"] = RECORDED_ZONES.get(choice.name)
    if given["telemetry_retention"] is None:
        given["telemetry_retention"] = "none"  # the recording may be replayed; with 72h Kafka would delete it
    if _speed_of(given) == JOURNEY and given["min_interval"] is None:
        found = usual_interval(sample_of(recordings[0], choice))
        given["min_interval"] = _DEFAULTS.min_interval if found is None else f"{max(1, round(found))}s"


def _streets_command(gtfs: Path) -> str:
    """Return the command that cuts a base map of the city out of a free one: around the stops, which are public.

    Raises BadTimetable.
    """
    from hatcast.agents.timetable.network import read_network

    places = [stop.place for stop in read_network(gtfs).stops]
    if not places:
        raise HatcastError(f"--gtfs: {gtfs} has no stop with a name that a route serves")
    (south, west), (north, east) = map(min, zip(*places, strict=True)), map(max, zip(*places, strict=True))
    built = datetime.fromtimestamp(now_ms() / 1000, UTC) - timedelta(days=1)  # today's may not be there yet
    corners = west - _MARGIN_DEGREES, south - _MARGIN_DEGREES, east + _MARGIN_DEGREES, north + _MARGIN_DEGREES
    bounds = ",".join(f"{each:.2f}" for each in corners)
    return (
        f"pmtiles extract https://build.protomaps.com/{built:%Y%m%d}.pmtiles city.pmtiles --bbox={bounds} --maxzoom=14"
    )


def _at(config: Path) -> str:
    return "" if config == Path("hatcast.toml") else f" --config {config}"


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _from_options(given: dict[str, Any]) -> TemplateAnswers:
    answers = {key: value for key, value in given.items() if value is not None}
    if "timezone" not in answers:
        raise click.UsageError("name the city's time zone, such as --timezone Asia/Kolkata")
    return TemplateAnswers(**{"estimator": _estimator_of(given), "speed": _speed_of(given)} | _name_of(given) | answers)


def _name_of(given: dict[str, Any]) -> dict[str, str]:
    """Return the default name of a policy of another value than the speed."""
    return {} if given.get("value") is None else {"name": f"mean-{given['value'].name.replace('_', '-')}"}


def _ask(given: dict[str, Any], folder: Path) -> TemplateAnswers:
    """Ask each question with a default; repeat it after an invalid answer."""
    context = click.get_current_context()
    options = {option.name: option for option in context.command.params}
    options["telemetry_format"] = options["feed_format"]
    known: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    for key, question in _QUESTIONS.items():
        if key in known or (key in _OF_RELEASES and known.get("estimator") == TRACKER):
            continue
        if key in ("upper_bound", "speed") and "value" in known:
            continue
        if key == "min_interval" and _speed_of(known) != JOURNEY:
            continue

        def read(text: Any, key: str = key) -> Any:
            value = options[key].process_value(context, text)
            try:
                answers = {"timezone": "UTC", "estimator": _estimator_of(known)} | known | {key: value}
                parse_template(render_template(TemplateAnswers(**answers)), folder)
            except SettingError as error:
                raise click.BadParameter(str(error)) from None
            return value

        known[key] = click.prompt(question, default=_default(key, known), value_proc=read)
    return TemplateAnswers(**known)


def _default(key: str, known: dict[str, Any]) -> Any:
    if key == "timezone":
        return machine_timezone()
    if key == "estimator":
        return _estimator_of(known)
    if key == "speed":
        return _speed_of(known)
    if key == "name":
        return _name_of(known).get("name", _DEFAULTS.name)
    if key == "hours":
        return ",".join(map(str, _DEFAULTS.hours))
    return TemplateAnswers(**known).limit if key == "daily_limit" else getattr(_DEFAULTS, key)
