"""Set keys in the text of a hatcast.toml, and change nothing else."""

import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from hatcast.stream.errors import HatcastError

Value = str | float


def with_table_keys(text: str, table: str, values: Mapping[str, Value]) -> str:
    """Return the text with these keys in `[table]`. A missing table is added at the end.

    Raises HatcastError if the text is not TOML, or if it writes the table in another way than under its own heading.
    """
    wanted = _decoded(text)
    at = wanted
    for part in table.split("."):
        at = at.setdefault(part, {})
    at.update(values)
    lines = text.splitlines()
    start, end = _section(lines, table)
    if start is None:
        lines += ["", f"[{table}]"]
        start = end = len(lines)
    missing = dict(values)
    for i in range(start, end):
        found = re.match(r"\s*([A-Za-z0-9_-]+)\s*=", lines[i])
        if found is not None and found[1] in missing:
            lines[i] = _replaced(lines[i], found[1], missing.pop(found[1]))
    while end > start and not lines[end - 1].strip():
        end -= 1
    lines[end:end] = [_line(key, value) for key, value in missing.items()]
    edited = "\n".join(lines) + "\n"
    with suppress(tomllib.TOMLDecodeError):
        if tomllib.loads(edited) == wanted:
            return edited
    raise HatcastError(f"[{table}] is not written under its own heading: set its keys by hand")


def without_other_keys(text: str, table: str, kept: str) -> str:
    """Return the text without the keys of `[table]` other than `kept`."""
    return _without(text, table, rf"(?!{re.escape(kept)}\s*=)[A-Za-z0-9_-]+")


def without_keys(text: str, table: str, *keys: str) -> str:
    """Return the text without these keys of `[table]`."""
    return _without(text, table, "|".join(map(re.escape, keys)))


def _without(text: str, table: str, keys: str) -> str:
    """Return the text without the lines of `[table]` whose key matches."""
    lines = text.splitlines()
    start, end = _section(lines, table)
    if start is None:
        return text
    dropped = re.compile(rf"\s*({keys})\s*=")
    section = [line for line in lines[start:end] if dropped.match(line) is None]
    return "\n".join([*lines[:start], *section, *lines[end:]]) + "\n"


def _section(lines: list[str], table: str) -> tuple[int | None, int]:
    """Return the first line below a table's heading and the line after its last one; (None, 0) without it."""
    headings = [i for i, line in enumerate(lines) if re.match(r"\s*\[", line)]
    for i, following in zip(headings, [*headings[1:], len(lines)], strict=False):
        if re.match(rf"\s*\[\s*{re.escape(table)}\s*\]", lines[i]):
            return i + 1, following
    return None, 0


def _replaced(line: str, key: str, value: Value) -> str:
    """Return a line `key = value # ..` with another value; the comment keeps its column, unless the value has a #."""
    found = re.match(r"""([^"'#]*(?:"[^"#]*"|'[^'#]*')?[^"'#]*\s)(#.*)$""", line)
    return _line(key, value) if found is None else f"{_line(key, value):{len(found[1]) - 1}} {found[2]}"


def _line(key: str, value: Value) -> str:
    return f"{key} = {msgspec.json.encode(value).decode()}"


def _decoded(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise HatcastError(f"the file is not TOML ({error}): fix it first") from None
