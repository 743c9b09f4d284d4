"""TOML tables as structs: how a key is declared, their decoding by msgspec, and errors with key and example.

A key is one field of a struct: its name, type and default, `such_as` for an example where there is no default, and
below it the sentence of docs/configuration.md, which `python -m tools.configuration_reference` reads there.
"""

import datetime as dt
import json
import re
import types
import typing
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

import msgspec

from hatcast.stream.errors import SettingError, name_fix, similar_name

T = TypeVar("T", bound=msgspec.Struct)
E = TypeVar("E", bound=StrEnum)

_PATH: Final = re.compile(r" - at `\$\.?([^`]*)`$")
_INTEGERS: Final = 1 << 63
_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_INDEX: Final = re.compile(r"\[([0-9]+)\]")
_SYMBOLS: Final[Mapping[str, str]] = {"K": "max_hats_per_day", "U": "upper_bound"}  # docs/concepts.md
_EXPECTED: Final[Mapping[object, str]] = {str: "text", int: "an integer", float: "a number", bool: "true or false"}
_LISTS: Final[Mapping[object, str]] = {str: "texts", int: "integers", float: "numbers"}  # of anything else: tables
_SHOWN_MAX: Final = 40  # characters of a wrong value


def such_as(value: object, *, default: str | None = None) -> msgspec.Meta:
    """Return the annotation of a key: an example for error messages, and its default in words if the field has none."""
    return msgspec.Meta(examples=[value], extra={"default": default})


Duration = Annotated[str, msgspec.Meta(extra={"type": "duration"})]


def example(field: msgspec.structs.FieldInfo) -> object:
    """Return an example of a key's value: its default, or the one of `such_as`; None if it has neither."""
    for each in _metas(field):
        if each.examples:
            return each.examples[0]
    return None if field.required or isinstance(field.default, msgspec.Struct) else field.default


def declared(field: msgspec.structs.FieldInfo, what: str) -> str | None:
    """Return the `type` or the `default` in words that a key's annotation has; None without."""
    return next((each.extra[what] for each in _metas(field) if each.extra and each.extra.get(what)), None)


def _metas(field: msgspec.structs.FieldInfo) -> tuple[msgspec.Meta, ...]:
    return typing.get_args(field.type)[1:] if typing.get_origin(field.type) is typing.Annotated else ()


def value_type(field: msgspec.structs.FieldInfo) -> Any:
    """Return a key's type without annotations."""
    return typing.get_args(field.type)[0] if typing.get_origin(field.type) is typing.Annotated else field.type


def decode_table(table: Mapping[str, Any], into: type[T], where: str) -> T:
    """Decode one TOML table into a struct. `where` is the table's dotted name, "" at the top level.

    Raises SettingError for an unknown key (naming the most similar known key, or the table that has it), a missing key
    or a wrong type.
    """
    _check_integers(table, where)
    _check_keys(table, into, where, list(_keys(into, where)))
    try:
        return msgspec.convert(table, into)
    except msgspec.ValidationError as error:
        found = _PATH.search(str(error))
        raise type_error(table, into, where, found[1] if found else "") from None


def _check_integers(value: object, where: str) -> None:
    """Raise SettingError for an integer that is not one of TOML: Python reads larger ones, and cannot print them."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_integers(inner, joined(where, key))
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_integers(inner, where)
    elif isinstance(value, int) and not -_INTEGERS <= value < _INTEGERS:
        raise SettingError(where, "has an integer of more than 64 bits", "write a smaller one")


def _check_keys(
    table: Mapping[str, Any], into: type[msgspec.Struct], where: str, places: list[tuple[str, str]]
) -> None:
    """Raise SettingError for an unknown or a missing key. `places` are all keys, each after its table."""
    known = {field.encode_name: field for field in msgspec.structs.fields(into)}
    for key, value in table.items():
        if key not in known:
            raise unknown_key(key, list(known), where, [place for place, name in places if name == key])
        inner = _table_type(known[key])
        if isinstance(value, Mapping) and inner is not None:
            _check_keys(value, inner, joined(where, key), places)
    for key, field in known.items():
        if field.required and key not in table:
            raise SettingError(joined(where, key), "is missing", missing_fix(field, where))


def _keys(into: type[msgspec.Struct], where: str) -> Iterator[tuple[str, str]]:
    """Yield all keys of a table that has a name, and of the tables in it, each after its table's dotted name."""
    for field in msgspec.structs.fields(into):
        inner = _table_type(field)
        if inner is not None:
            yield from _keys(inner, joined(where, field.encode_name))
        elif where:
            yield where, field.encode_name


def _table_type(field: msgspec.structs.FieldInfo) -> type[msgspec.Struct] | None:
    """Return the struct of a key whose value is a table; None for any other key."""
    return field.type if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct) else None


def duration_ms(text: str, key: str, example: str = "5m") -> int:
    """Convert a duration such as "300s" or "5m" to milliseconds. Raises SettingError that names `key`."""
    duration = _DURATION.fullmatch(text)
    if duration is None:
        raise SettingError(
            key, f"{text!r} is not a duration", f'write an integer with ms, s, m, h or d, such as "{example}"'
        )
    return int(duration[1]) * _DURATION_MS[duration[2]]


def member(names: type[E], text: str, key: str, problem: str = "is unknown") -> E:
    """Return the member that a text names. Raises SettingError with the names, the most similar one first."""
    if text not in list(names):
        raise SettingError(key, f"{text!r} {problem}", name_fix(text, names))
    return names(text)


def check_within(value: int, least: int, most: int, key: str, problem: str = "is out of range") -> None:
    """Raise SettingError that names `key`, unless a number is from `least` to `most`."""
    if not least <= value <= most:
        raise SettingError(key, f"{value} {problem}", f"use {least} to {most}")


def plain_date(text: str, key: str, example: str = "2022-02-01", years: range = range(1, 10_000)) -> dt.date:
    """Convert a date in the form of the example: Python reads more forms. Raises SettingError that names `key`."""
    try:
        day = dt.date.fromisoformat(text)
    except ValueError:
        day = dt.date.min
    if day.isoformat() != text or day.year not in years:
        raise SettingError(key, f"{text!r} is not a date", f'use a local date such as "{example}"')
    return day


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
    forms = {bool: "true|false", int: r"-?[0-9]{1,18}", float: r"-?[0-9]{1,18}(\.[0-9]{1,18})?"}
    return text if any(kind in kinds and re.fullmatch(form, text) for kind, form in forms.items()) else None


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
            words.append(f"a list of {len(inner)} {_LISTS[inner[0]]}")
        elif origin is tuple:
            words.append(f"a list of {_LISTS.get(inner[0], 'tables')}")
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
