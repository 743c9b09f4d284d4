"""`hatcast init`: write a first hatcast.toml."""

import sys
from pathlib import Path
from typing import Any

import click

from hatcast.agents.cli.options import config_option
from hatcast.agents.config.template import (
    TEMPLATE_ESTIMATORS,
    Answers,
    machine_timezone,
    parse_template,
    render_template,
    write_template,
)
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.readings.formats import FORMATS

_DEFAULTS = Answers(timezone="")
_QUESTIONS = {
    "name": "Name of the policy",
    "timezone": "Time zone of the city, such as Asia/Kolkata",
    "upper_bound": "Upper bound of speeds, km/h",
    "epsilon": "Epsilon of one release; smaller hides more",
    "max_hats_per_day": "K, most hexagons and hours of a bus's day that count",
    "daily_limit": "Most epsilon that a bus's day may cost",
    "estimator": f"Estimator ({', '.join(TEMPLATE_ESTIMATORS)})",
    "kafka": "Bootstrap servers of Kafka",
    "redis": "URL of Redis",
    "telemetry_format": f"Format of the telemetry ({', '.join(FORMATS)})",
}


@click.command(epilog="Example:  hatcast init --timezone Europe/Helsinki --epsilon 0.5 --max-hats 40 --yes")
@config_option
@click.option("--name", help=f"Name of the policy.  [default: {_DEFAULTS.name}]")
@click.option(
    "--timezone", help="Time zone of the city, such as Asia/Kolkata.  [default on a terminal: this machine's]"
)
@click.option("--upper-bound", type=float, metavar="KM/H", help="U: higher speeds are clipped to it.  [default: 65]")
@click.option(
    "--epsilon", type=float, help="Epsilon of one release: a smaller one hides more and adds more noise.  [default: 1]"
)
@click.option(
    "--max-hats", "max_hats_per_day", type=int, help="K: most hexagons and hours of a bus's day.  [default: 89]"
)
@click.option(
    "--daily-limit", type=float, help="Most epsilon of a bus's day, all releases together.  [default: K x epsilon]"
)
@click.option("--estimator", type=click.Choice(TEMPLATE_ESTIMATORS), help="[default: array_averaging]")
@click.option("--kafka", help="Bootstrap servers.  [default: localhost:9092]")
@click.option("--redis", help="[default: redis://localhost:6379/0]")
@click.option(
    "--format",
    "telemetry_format",
    type=click.Choice(list(FORMATS)),
    help="Format of the telemetry; `hatcast feed` sends jsonl.  [default: jsonl]",
)
@click.option(
    "--yes", "-y", is_flag=True, help="Ask nothing: use defaults for missing options. Implied without a terminal."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--check-services", is_flag=True, help="Then run `hatcast doctor` on the file.")
def command(*, config: Path, yes: bool, force: bool, check_services: bool, **given: Any) -> None:
    """Write a first hatcast.toml with comments, after a few questions, and check it.

    On a terminal it asks for the values without an option. Elsewhere, or with --yes, these have their defaults;
    --timezone is then required. A file with an error is not written.
    """
    if config.exists() and not force:  # before the questions
        raise HatcastError(f"{config} exists already: name another file with --config, or overwrite it with --force")
    answers = _ask(given, config.parent) if _on_terminal() and not yes else _from_options(given)
    text = render_template(answers)
    try:
        policy = parse_template(text, config.parent).policy
    except SettingError as error:
        raise HatcastError(f"{config} is not written: {error}") from None
    write_template(text, config, force=force)
    click.echo(f"wrote {config}: policy {policy.name}, {policy.policy_id}")
    cost = min(answers.max_hats_per_day * answers.epsilon, answers.limit)
    click.echo(f"A bus's day can lose up to epsilon {cost:g}; explanation: hatcast budget --explain{_at(config)}")
    if check_services:
        click.get_current_context().invoke(_doctor(), config=config, as_json=False)
    else:
        click.echo(f"Next: hatcast doctor{_at(config)}")


def _at(config: Path) -> str:
    return "" if config == Path("hatcast.toml") else f" --config {config}"


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _doctor() -> click.Command:
    from hatcast.agents.cli.doctor import command as doctor

    return doctor


def _from_options(given: dict[str, Any]) -> Answers:
    answers = {key: value for key, value in given.items() if value is not None}
    if "timezone" not in answers:
        raise click.UsageError("name the city's time zone, such as --timezone Asia/Kolkata")
    return Answers(**answers)


def _ask(given: dict[str, Any], folder: Path) -> Answers:
    """Ask each question with a default; repeat it after an invalid answer."""
    context = click.get_current_context()
    options = {option.name: option for option in context.command.params}
    known: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    for key, question in _QUESTIONS.items():
        if key in known:
            continue

        def read(text: Any, key: str = key) -> Any:
            value = options[key].type.convert(text, options[key], context)
            try:
                parse_template(render_template(Answers(**({"timezone": "UTC"} | known | {key: value}))), folder)
            except SettingError as error:
                raise click.BadParameter(str(error)) from None
            return value

        known[key] = click.prompt(question, default=_default(key, known), value_proc=read)
    return Answers(**known)


def _default(key: str, known: dict[str, Any]) -> Any:
    if key == "timezone":
        return machine_timezone()
    return Answers(**known).limit if key == "daily_limit" else getattr(_DEFAULTS, key)
