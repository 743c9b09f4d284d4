"""`python -m tools.configuration_reference [--check]`: write the tables of docs/configuration.md, or check them."""

import ast
import inspect
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from hatcast.agents.config.settings import KafkaTable, RedisTable, WorkerTable
from hatcast.agents.config.tables import DisplayTable, TopicsTable
from hatcast.stream.policy.continual_keys import ContinualTable
from hatcast.stream.policy.query import QueryTable
from hatcast.stream.policy.running_keys import RunningTable
from hatcast.stream.policy.table import EstimatorTable, PolicyTable, PrivacyTable
from hatcast.stream.policy.toml_tables import declared, value_type
from hatcast.stream.policy.tracker_keys import TrackerTable
from hatcast.stream.policy.value_keys import ValueTable

TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "kafka": KafkaTable,
    "redis": RedisTable,
    "topics": TopicsTable,
    "worker": WorkerTable,
    "display": DisplayTable,
    "policy": PolicyTable,
    "policy.privacy": PrivacyTable,
    "policy.estimator": EstimatorTable,
    "policy.tracker": TrackerTable,
    "policy.continual": ContinualTable,
    "policy.query": QueryTable,
    "policy.value": ValueTable,
    "policy.running": RunningTable,
}
PAGE: Final = Path(__file__).parents[1] / "docs" / "configuration.md"
_TABLE: Final = re.compile(r"(<!-- keys of ([a-z.]+), written by [^>]*-->\n)(.*?)(<!-- end -->)", re.DOTALL)
_TYPES: Final = {str: "text", int: "integer", float: "number", bool: "`true` or `false`"}


def render_page(page: str) -> str:
    """Return the page with new tables and the same text around them. Raises ValueError if a table is missing."""
    names = [name for _, name, _, _ in _TABLE.findall(page)]
    if names != list(TABLES):
        raise ValueError(f"docs/configuration.md has tables of {', '.join(names)} instead of {', '.join(TABLES)}")
    return _TABLE.sub(lambda match: match[1] + "".join(_table(match[2])) + match[4], page)


def table_keys(table: str) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the keys of a table by name, without those that are tables with their own heading."""
    fields = msgspec.structs.fields(TABLES[table])
    return {each.encode_name: each for each in fields if f"{table}.{each.encode_name}" not in TABLES}


def meanings_of(table: type[msgspec.Struct]) -> dict[str, str]:
    """Return the sentence below each field of a struct, by the field's name."""
    (declaration,) = ast.parse(textwrap.dedent(inspect.getsource(table))).body
    found = {}
    if isinstance(declaration, ast.ClassDef):
        for statements in pairwise(declaration.body):
            match statements:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
                case _:
                    pass  # no key, or one without a sentence
    return found


def _table(name: str) -> Iterator[str]:
    meanings = meanings_of(TABLES[name])
    yield "\n| key | type | default | meaning |\n|---|---|---|---|\n"
    for key, field in table_keys(name).items():
        if field.name not in meanings:
            raise ValueError(f"{name}.{key}: write a sentence below its field")
        kind = declared(field, "type") or _type(f"{name}.{key}", value_type(field))
        yield f"| `{key}` | {kind} | {_default(field)} | {meanings[field.name]} |\n"
    yield "\n"


def _type(dotted: str, annotation: object) -> str:
    if isinstance(annotation, type) and annotation in _TYPES:
        return _TYPES[annotation]
    if isinstance(annotation, types.UnionType):
        kinds = [_type(dotted, part) for part in typing.get_args(annotation) if part is not types.NoneType]
        return " or ".join(kinds)
    if typing.get_origin(annotation) is tuple:
        first, *rest = typing.get_args(annotation)
        return f"array of {_TYPES[first]}s" if Ellipsis in rest else f"array of {1 + len(rest)} {_TYPES[first]}s"
    raise ValueError(f"{dotted}: the type {annotation} has no name in _TYPES")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if (words := declared(field, "default")) is not None:
        return words
    if field.required:
        return "required"
    if field.default is None:
        return ""
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return f"`{msgspec.json.encode(value).decode()}`"


def main() -> None:
    """Write the tables; with `--check` exit 1 if they differ."""
    page = PAGE.read_text()
    try:
        rendered = render_page(page)
    except ValueError as error:
        sys.exit(str(error))
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(rendered)
    elif rendered != page:
        sys.exit("docs/configuration.md and the types differ: run python -m tools.configuration_reference")


if __name__ == "__main__":
    main()
