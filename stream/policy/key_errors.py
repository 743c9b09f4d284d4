"""Errors about keys of hatcast.toml that are unknown, missing or of a wrong type: each with the key and an example."""

import datetime as dt
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from hatcast.stream.errors import SettingError, similar_name

_INDEX: Final = re.compile(r"\[([0-9]+)\]")
_SYMBOLS: Final[Mapping[str, str]] = {"K": "max_hats_per_day", "U": "upper_bound"}  # docs/concepts.md
_EXPECTED: Final[Mapping[object, str]] = {str: "text", int: "an integer", float: "a number", bool: "true or false"}
_LISTS: Final[Mapping[object, str]] = {str: "a list of texts", int: "a list of integers"}
_SHOWN_MAX: Final = 40  # characters of a wrong value


def such_as(value: object) -> msgspec.Meta:
    """Return the annotation of a key without a default: an example for error messages."""
    return msgspec.Meta(examples=[value])


def example(field: msgspec.structs.FieldInfo) -> object:
    """Return an example of a key's value: its default, or the one of `such_as`; None if it has neither."""
    if typing.get_origin(field.type) is typing.Annotated:
        for each in typing.get_args(field.type)[1:]:
            if isinstance(each, msgspec.Meta) and each.examples:
                return each.examples[0]
    return None if field.required or isinstance(field.default, msgspec.Struct) else field.default


def value_type(field: msgspec.structs.FieldInfo) -> Any:
    """Return a key's type without annotations."""
    return typing.get_args(field.type)[0] if typing.get_origin(field.type) is typing.Annotated else field.type


def joined(where: str, key: str) -> str:
    """Return the dotted name of a key of a table; `where` is "" at the top level."""
    return f"{where}.{key}" if where and key else where or key


def unknown_key(key: str, known: list[str], where: str, tables: list[str]) -> SettingError:
    """Return the error for a key that a table does not have. `tables` have a key of this name."""
    symbol = _SYMBOLS.get(key)
    near = symbol if symbol in known else similar_name(key, known)
    if tables and symbol not in known:
        fix = f"write it in {' or '.join(f'[{each}]' for each in tables)}"
    elif near is not None:
        fix = f"did you mean {near}?"
    else:
        fix = f"known keys are {', '.join(sorted(known))}"
    return SettingError(joined(where, key), "is not a known key", fix)


def missing_fix(field: msgspec.structs.FieldInfo, where: str) -> str:
    """Return the fix for a required key that is missing from the table `where`."""
    shown = example(field)
    if shown is None:  # a table
        return f"add the table [{joined(where, field.encode_name)}], or let `hatcast init` write a first file"
    inside = f"[[{_INDEX.sub('', where)}]]" if _INDEX.search(where) else f"[{where}]"
    return f"add it to {inside}, such as {_line(field.encode_name, shown)}"


def type_error(table: Mapping[str, Any], into: type[msgspec.Struct], where: str, path: str) -> SettingError:
    """Return the error for a value of a wrong type at a path such as `privacy.epsilon` or `hours[1]`."""
    value: Any = table
    field: msgspec.structs.FieldInfo | None = None
    struct: Any = into
    for part in path.split("."):
        key, _, index = part.partition("[")
        field = next(each for each in msgspec.structs.fields(struct) if each.encode_name == key)
        struct, value = value_type(field), value[key]
        if index:
            value = value[int(index.rstrip("]"))]
    name = _INDEX.sub("", path)
    if field is None:  # pragma: no cover - a path has a part
        return SettingError(where, "has a value of a wrong type", "see docs/configuration.md")
    expected = " or ".join(_kinds(struct))
    return SettingError(
        joined(where, name), f"{_described(value)}, not {expected}", _type_fix(field, value, joined(where, name))
    )


def _type_fix(field: msgspec.structs.FieldInfo, value: object, name: str) -> str:
    kind, key = value_type(field), field.encode_name
    kinds = set(_members(kind))
    if "a table" in _kinds(kind):
        return f"write [{name}] on a line of its own, and its keys below"
    if "a list of tables" in _kinds(kind):
        return f"write [[{name}]] on a line of its own, and its keys below"
    if isinstance(value, dt.date | dt.time) and str in kinds:
        return f"write it in quotes: {key} = {_toml(str(value))}"
    if isinstance(value, str) and (number := _number(value, kinds)) is not None:
        return f"write it without quotes: {key} = {number}"
    return f"write {_line(key, example(field))}"


def _number(text: str, kinds: set[object]) -> str | None:
    """Return text that is a value of these types without its quotes."""
    if bool in kinds and text in ("true", "false"):
        return text
    if int in kinds and re.fullmatch(r"-?[0-9]{1,18}", text):
        return text
    if float in kinds and re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", text):
        return text
    return None


def _members(kind: Any) -> Iterator[Any]:
    """Yield the types of a union, without None."""
    members = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    yield from (member for member in members if member is not types.NoneType)


def _kinds(kind: Any) -> list[str]:
    """Return the expected types in words."""
    words = []
    for member in _members(kind):
        origin, inner = typing.get_origin(member) or member, typing.get_args(member)
        if origin is tuple and inner[-1] is not Ellipsis:
            words.append(f"a list of {len(inner)} integers")
        elif origin is tuple:
            words.append(_LISTS.get(inner[0], "a list of tables"))
        elif origin is dict or (isinstance(origin, type) and issubclass(origin, msgspec.Struct)):
            words.append("a table")
        else:
            words.append(_EXPECTED[member])
    return words


def _described(value: object) -> str:
    """Return `VALUE is TYPE`; only the type of a list or a table, which may be long."""
    if isinstance(value, list):
        return f"is a list of {len(value)}"
    if isinstance(value, Mapping):
        return "is a table"
    if isinstance(value, bool):
        return f"{str(value).lower()} is a boolean"
    names: dict[type, str] = {str: "text", int: "an integer", float: "a number"}
    kind = names.get(type(value), "a date" if isinstance(value, dt.date) else "a time")
    shown = repr(value) if isinstance(value, str) else str(value)
    return f"{shown} is {kind}" if len(shown) <= _SHOWN_MAX else f"is {kind}"


def _line(key: str, value: object) -> str:
    return f"{key} = {_toml(value)}"


def _toml(value: object) -> str:
    """Return a number, a text or a list of them in TOML, where they are written as in JSON."""
    return json.dumps(value)
