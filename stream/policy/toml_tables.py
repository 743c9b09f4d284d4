"""Decoding of TOML tables into structs, with errors that name the key and the fix.

msgspec decodes. This module adds to its errors the path of the table and the likeliest known key.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from hatcast.stream.errors import SettingError

T = TypeVar("T", bound=msgspec.Struct)

_PATH: Final = re.compile(r" - at `\$\.?([^`]*)`$")
_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def decode_table(table: Mapping[str, Any], into: type[T], where: str) -> T:
    """Decode one TOML table into a struct. `where` is the table's dotted name, "" at the top level.

    Raises SettingError for an unknown key (naming the most similar known key), a missing key or a wrong type.
    """
    _reject_unknown(table, into, where)
    for field in msgspec.structs.fields(into):
        if field.required and field.encode_name not in table:
            raise SettingError(_join(where, field.encode_name), "is missing", f"add it to [{where or 'the top'}]")
    try:
        return msgspec.convert(table, into)
    except msgspec.ValidationError as error:
        text = str(error)
        path = _PATH.search(text)
        key = _join(where, path[1] if path else "")
        problem = text[: path.start()] if path else text
        raise SettingError(key, problem[:1].lower() + problem[1:], "see the configuration reference") from None


def _reject_unknown(table: Mapping[str, Any], into: type[msgspec.Struct], where: str) -> None:
    known = {field.encode_name: field for field in msgspec.structs.fields(into)}
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            fix = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(sorted(known))}"
            raise SettingError(_join(where, key), "is not a known key", fix)
        inner = known[key].type
        if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            _reject_unknown(value, inner, _join(where, key))
            for field in msgspec.structs.fields(inner):
                if field.required and field.encode_name not in value:
                    inside = _join(where, key)
                    raise SettingError(_join(inside, field.encode_name), "is missing", f"add it to [{inside}]")


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where and key else where or key


def duration_ms(text: str, key: str) -> int:
    """Convert a duration such as "300s" or "5m" to milliseconds. Raises SettingError that names `key`."""
    duration = _DURATION.fullmatch(text)
    if duration is None:
        raise SettingError(key, f"{text!r} is not a duration", 'write an integer with ms, s, m, h or d, such as "5m"')
    return int(duration[1]) * _DURATION_MS[duration[2]]
