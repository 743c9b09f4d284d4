"""`hatcast init`: a first hatcast.toml."""

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
    "upper_bound": "Fastest that counts, km/h",
    "epsilon": "Epsilon of one release; smaller hides more",
    "max_hats_per_day": "K, hexagons and hours of a bus's day that count",
    "daily_limit": "Most that a bus's day may cost",
    "estimator": f"Estimator ({', '.join(TEMPLATE_ESTIMATORS)})",
    "kafka": "Kafka's bootstrap servers",
    "redis": "Redis",
    "telemetry_format": f"Format of telemetry ({', '.join(FORMATS)})",
}


@click.command(epilog="Example:  hatcast init --timezone Europe/Helsinki --epsilon 0.5 --max-hats 40 --yes")
@config_option
@click.option("--name", help=f"Of the policy.  [default: {_DEFAULTS.name}]")
@click.option("--timezone", help="Of the city, such as Asia/Kolkata.  [default on a terminal: this machine's]")
@click.option("--upper-bound", type=float, metavar="KM/H", help="U; faster counts as this.  [default: 65]")
@click.option("--epsilon", type=float, help="Of one release: less hides more and adds more noise.  [default: 1]")
@click.option("--max-hats", "max_hats_per_day", type=int, help="K: hexagons and hours of a bus's day.  [default: 89]")
@click.option("--daily-limit", type=float, help="Of a bus's day, all releases together.  [default: K x epsilon]")
@click.option("--estimator", type=click.Choice(TEMPLATE_ESTIMATORS), help="[default: array_averaging]")
@click.option("--kafka", help="Bootstrap servers.  [default: localhost:9092]")
@click.option("--redis", help="[default: redis://localhost:6379/0]")
@click.option(
    "--format",
    "telemetry_format",
    type=click.Choice(list(FORMATS)),
    help="Of telemetry that you produce; `hatcast feed` sends jsonl.  [default: jsonl]",
)
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: defaults for what is not named. So it is in scripts.")
@click.option("--force", is_flag=True, help="Overwrite the file if there is one.")
@click.option("--check-services", is_flag=True, help="Then run `hatcast doctor` on it.")
def command(*, config: Path, yes: bool, force: bool, check_services: bool, **given: Any) -> None:
    """Write a first hatcast.toml with remarks, after a few questions, and check it.

    On a terminal it asks for what no option names. Elsewhere, or with --yes, the rest has its default; --timezone has
    none there. What is refused is not written.
    """
    if config.exists() and not force:  # before ten questions are asked
        raise HatcastError(f"{config} is there already: name another with --config, or overwrite it with --force")
    answers = _asked(given, config.parent) if _on_terminal() and not yes else _named(given)
    text = render_template(answers)
    try:
        policy = parse_template(text, config.parent).policy
    except SettingError as refusal:
        raise HatcastError(f"{config} is not written: {refusal}") from None
    write_template(text, config, force=force)
    click.echo(f"wrote {config}: policy {policy.name}, {policy.policy_id}")
    cost = min(answers.max_hats_per_day * answers.epsilon, answers.limit)
    click.echo(f"A bus's day can lose up to epsilon {cost:g}; in words: hatcast budget --explain{_at(config)}")
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


def _named(given: dict[str, Any]) -> Answers:
    named = {key: value for key, value in given.items() if value is not None}
    if "timezone" not in named:
        raise click.UsageError("name the city's time zone, such as --timezone Asia/Kolkata")
    return Answers(**named)


def _asked(given: dict[str, Any], folder: Path) -> Answers:
    """Each question in turn, with a default to accept; an answer that would be refused is asked again."""
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
            except SettingError as refusal:
                raise click.BadParameter(str(refusal)) from None
            return value

        known[key] = click.prompt(question, default=_usual(key, known), value_proc=read)
    return Answers(**known)


def _usual(key: str, known: dict[str, Any]) -> Any:
    if key == "timezone":
        return machine_timezone()
    return Answers(**known).limit if key == "daily_limit" else getattr(_DEFAULTS, key)
