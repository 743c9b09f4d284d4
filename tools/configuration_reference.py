"""`python -m tools.configuration_reference [--check]`: write the tables of docs/configuration.md, or check them."""

import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from hatcast.agents.config.meanings import DEFAULTS, DURATIONS, MEANINGS, TABLES, table_keys
from hatcast.stream.policy.key_errors import value_type

PAGE: Final = Path(__file__).parents[1] / "docs" / "configuration.md"
_TABLE: Final = re.compile(r"(<!-- keys of ([a-z.]+), written by [^>]*-->\n)(.*?)(<!-- end -->)", re.DOTALL)
_TYPES: Final = {str: "text", int: "integer", float: "number", bool: "`true` or `false`"}


def render_page(page: str) -> str:
    """Return the page with new tables and the same text around them. Raises ValueError if a table is missing."""
    names = [name for _, name, _, _ in _TABLE.findall(page)]
    if names != list(TABLES):
        raise ValueError(f"docs/configuration.md has tables of {', '.join(names)} instead of {', '.join(TABLES)}")
    return _TABLE.sub(lambda match: match[1] + "".join(_table(match[2])) + match[4], page)


def _table(name: str) -> Iterator[str]:
    fields, meanings = table_keys(name), MEANINGS[name]
    if fields.keys() != meanings.keys():
        raise ValueError(
            f"[{name}]: keys without a meaning, or meanings without a key: {sorted(fields.keys() ^ meanings.keys())}"
        )
    yield "\n| key | type | default | meaning |\n|---|---|---|---|\n"
    for key, field in fields.items():
        dotted = f"{name}.{key}"
        yield f"| `{key}` | {_type(dotted, value_type(field))} | {_default(dotted, field)} | {meanings[key]} |\n"
    yield "\n"


def _type(dotted: str, annotation: object) -> str:
    if dotted in DURATIONS:
        return "duration"
    if isinstance(annotation, type) and annotation in _TYPES:
        return _TYPES[annotation]
    if isinstance(annotation, types.UnionType):
        kinds = [_type(dotted, part) for part in typing.get_args(annotation) if part is not types.NoneType]
        return " or ".join(kinds)
    if annotation == tuple[str, ...]:
        return "array of texts"
    if typing.get_origin(annotation) is tuple:
        return f"array of {len(typing.get_args(annotation))} integers"
    raise ValueError(f"{dotted}: the type {annotation} has no name in _TYPES")


def _default(dotted: str, field: msgspec.structs.FieldInfo) -> str:
    if dotted in DEFAULTS:
        return DEFAULTS[dotted]
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
