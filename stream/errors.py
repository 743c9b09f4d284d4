"""Errors that are shown to the operator.

    HatcastError              hatcast stops; str() is one line that says what to change
    ├── SettingError          a key of hatcast.toml is missing, unknown or out of range
    └── RecordingError        a file does not have the format that was named for it

An expected result is a value, not an exception: a record ends in an `Outcome`, a HAT in a `Status`.
An error message contains no telemetry data: no vehicle, no reading, no count.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

UNREADABLE: Final = (ValueError, RecursionError)
"""What msgspec raises for bytes that are not such a record: malformed JSON, wrong types and text that is not UTF-8
(ValueErrors; a UnicodeDecodeError is no MsgspecError), and JSON nested deeper than Python's stack."""


def readable(decode: Callable[[bytes], T], value: bytes) -> T | None:
    """Decode bytes with a decoder of msgspec; return None if they are not a valid record."""
    try:
        return decode(value)
    except UNREADABLE:
        return None


class HatcastError(Exception):
    """Base class of the errors that end a command. The message is one line and names the fix."""


class SettingError(HatcastError):
    """A configuration key is missing, unknown or out of range, or its value would break a guarantee."""

    def __init__(self, key: str, problem: str, fix: str) -> None:
        super().__init__(f"{key}: {problem}; {fix}")
        self.key = key


class RecordingError(HatcastError):
    """A recording does not have the format that was named for it."""

    def __init__(self, path: str, problem: str, fix: str) -> None:
        super().__init__(f"{path}: {problem}; {fix}")


def as_option(name: str, value: object) -> str:
    """Return an option as in a shell, for an error's text; in Python it is an argument or a field of `Columns`."""
    return f"`--{name} {value}`"


def similar_name(given: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to an unknown one, ignoring case; None if none is."""
    import difflib  # noqa: PLC0415 - 10 ms, and every command loads this module

    names = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(given.casefold(), names, n=1)
    return names[near[0]] if near else None


def name_fix(given: str, known: Iterable[str]) -> str:
    """Return the fix of an error about an unknown name: the most similar known name, and all of them."""
    names = list(known)
    near = similar_name(given, names)
    listed = f"use one of {', '.join(names)}"
    return listed if near is None else f"did you mean {near}? {listed}"
