"""`hatcast plan tracker --write`: set the keys of a plan in the text of a hatcast.toml, and change nothing else."""

import tomllib
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import tomlkit
from tomlkit.exceptions import ParseError
from tomlkit.items import Item

from hatcast.stream.errors import HatcastError

if TYPE_CHECKING:
    from hatcast.lab.plan.continual.choose import ContinualPlan
    from hatcast.lab.plan.tracker import TrackerPlan

Value = str | float


def with_table_keys(text: str, table: str, values: Mapping[str, Value]) -> str:
    """Return the text with these keys in `[table]`; a missing table is added. Comments keep their columns.

    Raises HatcastError if the text is not TOML, or has something else under the table's name.
    """
    document = _parsed(text)
    section = document
    for part in table.split("."):
        section = _table(section.setdefault(part, tomlkit.table()), table)
    for key, value in values.items():
        before = section.get(key)
        section[key] = value
        if before is not None:
            _align_comment(section[key], len(tomlkit.item(before).as_string()))
    return tomlkit.dumps(document)


def without_other_keys(text: str, table: str, kept: str) -> str:
    """Return the text without the keys of `[table]` other than `kept`. Raises HatcastError as `with_table_keys`."""
    return without_keys(text, table, *(key for key in _section(_parsed(text), table) if key != kept))


def without_keys(text: str, table: str, *keys: str) -> str:
    """Return the text without these keys of `[table]`. Raises HatcastError as `with_table_keys`."""
    document = _parsed(text)
    section = _section(document, table)
    for key in keys:
        section.pop(key, None)
    return tomlkit.dumps(document)


def _parsed(text: str) -> MutableMapping[str, Any]:
    try:
        return tomlkit.parse(text)
    except ParseError as error:
        raise HatcastError(f"the file is not TOML ({error}): fix it first") from None


def _section(document: MutableMapping[str, Any], table: str) -> MutableMapping[str, Any]:
    """Return a table; empty and not in the document if it is missing."""
    for part in table.split("."):
        document = _table(document.get(part, {}), table)
    return document


def _table(found: object, name: str) -> MutableMapping[str, Any]:
    if not isinstance(found, MutableMapping):
        raise HatcastError(f"[{name}] is not a table: set its keys by hand")
    return found


def _align_comment(item: Item, width: int) -> None:
    """Move the comment behind a value to where it was when the value had this width."""
    if item.trivia.comment:
        spaces = len(item.trivia.comment_ws) + width - len(item.as_string())
        item.trivia.comment_ws = " " * max(1, spaces)


def read_target(path: Path) -> str:
    """Return the text of the configuration that is written later. Raises HatcastError."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise HatcastError(f"--write: {path}: no such file; create it with `hatcast init`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HatcastError(f"--write: {path} cannot be read ({type(error).__name__}); name a readable file") from None


def write_tracker(path: Path, text: str, plan: "TrackerPlan", timetable: Path | None = None) -> None:
    """Write the keys of a tracker. timetable: to name there; None: what is there stays. Raises HatcastError."""
    from hatcast.agents.config.template import relative_path, write_template
    from hatcast.lab.plan.tracker import keys_json

    text = without_other_keys(
        with_table_keys(text, "policy.estimator", {"name": "tracker"}), "policy.estimator", "name"
    )
    # A tracker has no epsilon of a HAT, and its cap is a bound of memory.
    text = without_keys(text, "policy.privacy", "epsilon", "max_hats_per_day")
    text = with_table_keys(text, "policy.privacy", {"daily_limit": plan.total})
    named = {} if timetable is None else {"timetable": relative_path(timetable, path.parent)}
    write_template(with_table_keys(text, "policy.tracker", keys_json(plan.keys) | named), path, force=True)
    click.echo(f"wrote the plan for a total of {plan.total:g} into {path}", err=True)


def write_continual(path: Path, text: str, plan: "ContinualPlan") -> None:
    """Write the keys of [policy.continual]. Raises HatcastError, also if the policy has slots of another number."""
    from hatcast.agents.config.settings import parse_settings
    from hatcast.agents.config.template import write_template
    from hatcast.lab.plan.continual.report import keys_of
    from hatcast.stream.policy.policy import ContinualKeys

    text = without_keys(text, "policy", "estimator", "tracker", "query", "values")
    text = without_keys(text, "policy.continual", "branching", "buffers")
    text = without_keys(text, "policy.privacy", "unit", "max_hats_per_day", "daily_limit", "total_limit")
    stream = plan.stream
    values = {"epsilon": stream.epsilon, **({"delta": stream.delta} if plan.best.setting.delta else {})}
    text = with_table_keys(with_table_keys(text, "policy.privacy", values), "policy.continual", keys_of(plan))
    keys = parse_settings(tomllib.loads(text), path.parent, {}).policy.keys_of(ContinualKeys)
    if keys.slots != stream.slots:
        raise HatcastError(
            f"--write: the horizon has {stream.slots} slots, but {stream.days} days have {keys.slots} by the hours and"
            f" slot_length of {path}; plan with --config {path}"
        )
    write_template(text, path, force=True)
    click.echo(f"wrote kind {plan.best.kind.value} for {stream.days} days into {path}", err=True)
