"""`hatcast plan --write`: set the keys of a plan in a hatcast.toml."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hatcast.stream.errors import HatcastError

if TYPE_CHECKING:  # imported when it is needed, so that --help is fast
    from hatcast.lab.plan.continual.choose import ContinualPlan
    from hatcast.lab.plan.grid import Plan


def read_target(path: Path) -> str:
    """Return the text of the configuration that is written later. Raises HatcastError."""
    import tomlkit  # noqa: F401 - a plan takes minutes: if this extra is missing, say so before

    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise HatcastError(f"--write: {path}: no such file; create it with `hatcast init`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HatcastError(f"--write: {path} cannot be read ({type(error).__name__}); name a readable file") from None


def write_tracker(path: Path, text: str, plan: "Plan") -> None:
    """Write the keys of a tracker. Raises HatcastError."""
    from hatcast.agents.config.template import write_template
    from hatcast.lab.plan.edit import with_table_keys, without_keys, without_other_keys
    from hatcast.lab.plan.report import keys_json

    text = without_other_keys(
        with_table_keys(text, "policy.estimator", {"name": "tracker"}), "policy.estimator", "name"
    )
    # A tracker has no epsilon of a HAT, and its cap is a bound of memory.
    text = without_keys(text, "policy.privacy", "epsilon", "max_hats_per_day")
    text = with_table_keys(text, "policy.privacy", {"daily_limit": plan.total})
    write_template(with_table_keys(text, "policy.tracker", keys_json(plan.keys)), path, force=True)
    click.echo(f"wrote the plan for a total of {plan.total:g} into {path}", err=True)


def write_continual(path: Path, text: str, plan: "ContinualPlan") -> None:
    """Write the keys of [policy.continual]. Raises HatcastError, also if the policy has slots of another number."""
    from hatcast.agents.config.settings import parse_settings
    from hatcast.agents.config.template import write_template
    from hatcast.lab.plan.continual.report import keys_of
    from hatcast.lab.plan.edit import with_table_keys, without_keys

    text = without_keys(text, "policy", "estimator", "tracker", "query", "values")
    text = without_keys(text, "policy.continual", "branching", "buffers")
    text = without_keys(text, "policy.privacy", "unit", "max_hats_per_day", "daily_limit", "total_limit")
    stream = plan.stream
    values = {"epsilon": stream.epsilon, **({"delta": stream.delta} if plan.best.setting.delta else {})}
    text = with_table_keys(with_table_keys(text, "policy.privacy", values), "policy.continual", keys_of(plan))
    keys = parse_settings(tomllib.loads(text), path.parent, {}).policy.continual
    if keys is None or keys.slots != stream.slots:
        slots = 0 if keys is None else keys.slots
        raise HatcastError(
            f"--write: the horizon has {stream.slots} slots, but {stream.days} days have {slots} by the hours and"
            f" slot_length of {path}; plan with --config {path}"
        )
    write_template(text, path, force=True)
    click.echo(f"wrote kind {plan.best.kind.value} for {stream.days} days into {path}", err=True)
