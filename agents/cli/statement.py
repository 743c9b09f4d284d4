"""`hatcast statement`: what a publisher tells the public about a policy, with all numbers computed from it."""

import re
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Final

import click
import h3.api.basic_int as h3

from hatcast.agents.cli.budget_explained import figures
from hatcast.agents.cli.budget_horizon import certainty
from hatcast.agents.cli.options import config_option
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.stream.budget import day_loss
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.policy import ContinualKeys, HybridKeys, Policy, TrackerKeys
from hatcast.stream.units import HOUR_MS, MINUTE_MS, NANO

_FILES: Final = {"page": "page.md", "registry": "registry.yaml", "hazards": "hazards.md"}
_LINE: Final = re.compile(r"(?:\[(!?)(\w+)\])?(.*\n)")  # `[flag]` or `[!flag]` first: only where the policy is so
_WEAK: Final = 10.0


@click.command(epilog="Example:  hatcast statement page > privacy.md")
@click.argument("what", type=click.Choice(list(_FILES)))
@config_option
def command(what: str, config: Path) -> None:
    """Print the privacy statement of a policy, as a page for its publisher, as an entry for the public registry of
    deployments, or as answers to the privacy hazards of NIST SP 800-226. Fill what stands in ⟨…⟩.
    """
    settings = load_settings(config)
    click.echo(statement(what, settings, Calendar(settings.policy).local(now_ms()).date().isoformat()), nl=False)


def statement(what: str, settings: Settings, today: str) -> str:
    """Return a statement: page, registry or hazards. today: of its publication, unless the policy has a first date."""
    text = (files("hatcast.agents.cli") / "statements" / _FILES[what]).read_text(encoding="utf-8")
    flags, values = _flags(settings), _values(settings, today)
    lines = [line for no, flag, line in _LINE.findall(text) if not flag or (flag in flags) != bool(no)]
    return "".join(lines).format_map(values)


def _flags(settings: Settings) -> set[str]:
    policy, method = settings.policy, settings.policy.method
    flags = {
        policy.relation.value: True,
        "adds": policy.total_limit is None,
        "day": policy.total_limit is None and not method.has_horizons,
        "total": policy.total_limit is not None,
        "tracker": isinstance(method, TrackerKeys),
        "horizons": method.has_horizons,
        "releases": not isinstance(method, TrackerKeys) and not method.has_horizons,
        "devices": policy.takes_reports,
        "delta": not policy.is_pure,
        "weak": day_loss(policy).bound > _WEAK * NANO,
    }
    return {flag for flag, holds in flags.items() if holds}


def _span(policy: Policy) -> str:
    """Return the period of the privacy unit, which epsilon bounds for one vehicle."""
    if isinstance(policy.method, ContinualKeys):
        return f"one horizon of {policy.method.horizon_days} days"
    return "one local date" if policy.total_limit is None else "all logs"


def _values(settings: Settings, today: str) -> dict[str, object]:
    """Return the values of the placeholders: the policy, and the figures of `hatcast budget explain`."""
    policy, method, cost = settings.policy, settings.policy.method, figures(settings.policy, 31, "")
    day: float = cost["day"]["bound"]
    release = cost.get("hat", {}).get("with_queries", day)
    is_hourly = policy.slot_length_ms == HOUR_MS
    return {
        "policy": policy,
        "cost": cost,
        "version": version("hatcast"),
        "slug": re.sub(r"[^a-z0-9]+", "-", policy.name.lower()).strip("-"),
        "published": policy.from_date or today,
        "quantity": "the " + " and the ".join([policy.quantity, *(value.name for value in policy.released_values[1:])]),
        "what": "the " + " and the ".join(value.name for value in policy.released_values),
        "area": f"{h3.average_hexagon_area(policy.h3_resolution, 'km^2'):.2g}",
        "slot": "hour" if is_hourly else f"{policy.slot_length_ms // MINUTE_MS} minutes",
        "noise": "Laplace" if policy.is_pure else "Gaussian",
        "flavor": "Pure DP" if policy.is_pure else "Approximate DP",
        "model": "Local" if isinstance(method, HybridKeys) and not method.use.central else "Central",
        "span_text": _span(policy),
        "epsilon_release": f"{release:g}",
        "sure_release": certainty(release),
        "sure_day": certainty(day),
        "epsilon_unit": f"{day if policy.total_limit is None else policy.total_limit:g}",
        "retention": "⟨how long⟩" if settings.retention_ms is None else f"{settings.retention_ms // HOUR_MS} hours",
    }
