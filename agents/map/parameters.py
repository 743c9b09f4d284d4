"""Request parameters of the API: parsed and validated; an error is one line that names the valid form."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import h3.api.basic_str as h3

from hatcast.agents.map.record import RecordKind, instant_ms

if TYPE_CHECKING:
    from multidict import MultiMapping

_CELL: Final = re.compile(r"[0-9a-f]{15}")
_SLOT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}")
_POLICY: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_ANSWER_FORMS: Final = {
    "query": (_POLICY, "the name of a query"),
    "period": (re.compile(r"\d{4}-\d{2}-\d{2}"), 'the first date of a period, such as "2021-11-15"'),
    "slot": (re.compile(r"\d{2}:\d{2}"), 'the local start of a slot, such as "09:00"'),
}
_INSTANT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})")
_INSTANT_HINT: Final = 'write an instant with an offset, such as "2022-01-02T09:00:00+05:30" (in a URL "+" is "%2B")'


@dataclass(eq=False)
class RequestError(Exception):
    """Rejected request: its HTTP status and the reason, in one line."""

    status: int
    reason: str


def reject_unknown(query: "MultiMapping[str]", *known: str) -> None:
    """Raise RequestError if the query has an unknown or repeated parameter: it would be ignored silently."""
    if len(set(query)) < len(query):
        raise RequestError(400, "a parameter is given twice: write it once")
    for name in query:
        if name not in known:
            allowed = f"allowed are {', '.join(known)}" if known else "none is allowed here"
            raise RequestError(400, f"unknown parameter: {allowed}")


def parse_policy(query: Mapping[str, str]) -> str | None:
    """Return the parameter `policy`, or None without it. Raises RequestError."""
    name = query.get("policy")
    if name is not None and not _POLICY.fullmatch(name):
        raise RequestError(400, "policy: not a policy name; /api/v1/slots lists the policies")
    return name


def parse_slot(query: Mapping[str, str]) -> str | None:
    """Return the parameter `slot`, or None without it. Raises RequestError."""
    slot = query.get("slot")
    if slot is not None and not _SLOT.fullmatch(slot):
        raise RequestError(
            400, 'slot: write a slot\'s local start, such as "2022-01-02T09:00"; /api/v1/slots lists the slots'
        )
    return slot


def parse_answers(query: Mapping[str, str]) -> tuple[str | None, str | None, str | None]:
    """Return the parameters `query`, `period` (a first date) and `slot` (a time), each None without it.

    Raises RequestError.
    """
    found = []
    for name, (form, hint) in _ANSWER_FORMS.items():
        value = query.get(name)
        if value is not None and not form.fullmatch(value):
            raise RequestError(400, f"{name}: write {hint}; /api/v1/slots lists them under queries")
        found.append(value)
    return found[0], found[1], found[2]


def parse_name(query: Mapping[str, str]) -> str | None:
    """Return the parameter `name` of a running mean, or None without it: all of them. Raises RequestError."""
    name = query.get("name")
    if name is not None and not _POLICY.fullmatch(name):
        raise RequestError(400, "name: not the name of a running mean; /api/v1/slots lists them under running")
    return name


def parse_kind(query: Mapping[str, str]) -> RecordKind | None:
    """Return the parameter `kind`, or None without it: every kind. Raises RequestError."""
    kind = query.get("kind")
    if kind is not None and kind not in [*RecordKind]:
        raise RequestError(400, f"kind: write one of {', '.join(RecordKind)}, or leave it out for all")
    return None if kind is None else RecordKind(kind)


def parse_cell(text: str) -> str:
    """Return a valid H3 index. Raises RequestError."""
    if not _CELL.fullmatch(text) or not h3.is_valid_cell(text):
        raise RequestError(400, 'not an H3 cell: write 15 hexadecimal digits in lower case, such as "87608b0d2ffffff"')
    return text


def parse_span(query: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the parameters `from` and `to` (ms UTC), each None without it. Raises RequestError."""
    begin, end = (_instant(query.get(name), name) for name in ("from", "to"))
    if begin is not None and end is not None and begin >= end:
        raise RequestError(400, "from is not before to: swap them")
    return begin, end


def _instant(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not _INSTANT.fullmatch(text):
        raise RequestError(400, f"{name}: {_INSTANT_HINT}")
    try:
        return instant_ms(text)
    except (ValueError, OverflowError):
        raise RequestError(400, f"{name}: {_INSTANT_HINT}") from None
