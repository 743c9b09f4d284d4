"""The metrics that a PromQL expression names, and the labels that it asks them for."""

import re
from typing import Final

_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_RANGE: Final = re.compile(r"\[[^]]*\]")
_GROUPED: Final = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?(?!\s*\()")
_LABEL: Final = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=|!=|=~|!~)")
_WORDS: Final = frozenset({"and", "or", "unless", "bool", "offset", "by", "without", "on", "inf", "nan"})


def named(expression: str) -> dict[str, set[str]]:
    """Metric -> labels that stand in its selectors; those that a sum is grouped by count for all."""
    bare = _RANGE.sub("", _TEXT.sub('""', expression))
    grouped = {label.strip() for labels in _GROUPED.findall(bare) for label in labels.split(",") if label.strip()}
    found: dict[str, set[str]] = {}
    for name, selector in _SELECTOR.findall(_GROUPED.sub(" ", bare)):
        # A name before a bracket is a function: the expression then backtracks to a part of it.
        if name.lower() in _WORDS or not re.search(rf"\b{name}\b(?!\s*\()", bare):
            continue
        labels = set(_LABEL.findall(selector))
        found.setdefault(name, set(grouped)).update(labels)
    return found
