"""Decoding of TOML tables into structs. msgspec decodes; stream/policy/key_errors.py words its errors."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.key_errors import joined, missing_fix, type_error, unknown_key

T = TypeVar("T", bound=msgspec.Struct)

_PATH: Final = re.compile(r" - at `\$\.?([^`]*)`$")
_INTEGERS: Final = 1 << 63
_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


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
