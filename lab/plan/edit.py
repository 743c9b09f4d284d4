"""Set and remove keys in the text of a hatcast.toml, and change nothing else."""

from collections.abc import Mapping, MutableMapping
from typing import Any

import tomlkit
from tomlkit.exceptions import ParseError
from tomlkit.items import Item

from hatcast.stream.errors import HatcastError

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
