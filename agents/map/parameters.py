"""What is asked of the API, checked: a question that cannot be answered gets one line that says what to write."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import h3.api.basic_str as h3

from hatcast.agents.map.record import instant_ms

if TYPE_CHECKING:
    from multidict import MultiMapping

_CELL: Final = re.compile(r"[0-9a-f]{15}")
_SLOT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}")
_POLICY: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_INSTANT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})")
_MEND: Final = 'write an instant with an offset, such as "2022-01-02T09:00:00+05:30" (in a URL "+" is "%2B")'


@dataclass(eq=False)
class Wrong(Exception):
    """A question that cannot be answered, and why, in one line."""

    status: int
    why: str


def only(query: "MultiMapping[str]", *known: str) -> None:
    """Raises Wrong if the query has a parameter that is not known, or one twice: it would be passed over in silence."""
    if len(set(query)) < len(query):
        raise Wrong(400, "a parameter is there twice: write it once")
    for name in query:
        if name not in known:
            told = f"there are {', '.join(known)}" if known else "there are none here"
            raise Wrong(400, f"a parameter is not known: {told}")


def policy_of(query: Mapping[str, str]) -> str | None:
    """The parameter `policy`; None without. Raises Wrong."""
    name = query.get("policy")
    if name is not None and not _POLICY.fullmatch(name):
        raise Wrong(400, "policy: this is no name of a policy; /api/v1/slots lists them")
    return name


def slot_of(query: Mapping[str, str]) -> str | None:
    """The parameter `slot`; None without. Raises Wrong."""
    slot = query.get("slot")
    if slot is not None and not _SLOT.fullmatch(slot):
        raise Wrong(400, 'slot: write a slot\'s local start, such as "2022-01-02T09:00"; /api/v1/slots lists them')
    return slot


def cell_of(text: str) -> str:
    """An H3 index. Raises Wrong."""
    if not _CELL.fullmatch(text) or not h3.is_valid_cell(text):
        raise Wrong(400, 'this is no H3 cell: write 15 hexadecimal digits in lower case, such as "87608b0d2ffffff"')
    return text


def span_of(query: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The parameters `from` and `to` (ms UTC); None without. Raises Wrong."""
    begin, end = (_instant(query.get(name), name) for name in ("from", "to"))
    if begin is not None and end is not None and begin >= end:
        raise Wrong(400, "from is not before to: exchange them")
    return begin, end


def _instant(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not _INSTANT.fullmatch(text):
        raise Wrong(400, f"{name}: {_MEND}")
    try:
        return instant_ms(text)
    except (ValueError, OverflowError):
        raise Wrong(400, f"{name}: {_MEND}") from None
