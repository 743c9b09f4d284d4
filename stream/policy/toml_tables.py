"""TOML tables into structs, with refusals that name the key and say what to change.

msgspec decodes; what it cannot say well (which key was meant, where the table is) is added here.
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
    """One TOML table as a struct; `where` is its dotted name, "" at the top.

    Raises SettingError: an unknown key (with the likeliest known one), a missing one, a wrong type.
    """
    _refuse_unknown(table, into, where)
    for field in msgspec.structs.fields(into):
        if field.required and field.encode_name not in table:
            raise SettingError(_join(where, field.encode_name), "is missing", f"add it to [{where or 'the top'}]")
    try:
        return msgspec.convert(table, into)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _PATH.search(text)
        key = _join(where, found[1] if found else "")
        problem = text[: found.start()] if found else text
        raise SettingError(key, problem[:1].lower() + problem[1:], "see the configuration reference") from None


def _refuse_unknown(table: Mapping[str, Any], into: type[msgspec.Struct], where: str) -> None:
    known = {field.encode_name: field for field in msgspec.structs.fields(into)}
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            mend = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(sorted(known))}"
            raise SettingError(_join(where, key), "is not a known key", mend)
        inner = known[key].type
        if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            _refuse_unknown(value, inner, _join(where, key))
            for field in msgspec.structs.fields(inner):
                if field.required and field.encode_name not in value:
                    inside = _join(where, key)
                    raise SettingError(_join(inside, field.encode_name), "is missing", f"add it to [{inside}]")


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where and key else where or key


def duration_ms(text: str, key: str) -> int:
    """Milliseconds of "300s", "5m" and the like. Raises SettingError, naming `key`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise SettingError(key, f"{text!r} is not a duration", 'write an integer with ms, s, m, h or d, such as "5m"')
    return int(found[1]) * _DURATION_MS[found[2]]
