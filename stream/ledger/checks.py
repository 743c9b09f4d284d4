"""Invariants of a ledger's rows: where one does not hold, a row is damaged."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from hatcast.stream.ledger import rows
from hatcast.stream.ledger.book import levels_of, reserved_of
from hatcast.stream.ledger.day import day_cost
from hatcast.stream.ledger.transitions import NextPolicy
from hatcast.stream.ledger.view import DamagedRow, View, number_of

_KINDS: Final = frozenset({"commits", "releases", "epsilon", "cap", "cost", "fineness", "told"})
_OF_DATES: Final = frozenset({"costs", "levels", "releases"})
_OTHERS: Final = frozenset(
    {
        *("ledger", rows.TOTAL, rows.NONCES, rows.LAST, rows.NEXT_POLICIES, "unsealed"),
        *("running", "horizons", "tracker"),
    }
)


def check_rows(found: Mapping[str, dict[str, bytes]], records: Mapping[str, int]) -> None:
    """Raise DamagedRow unless the rows of a ledger without sealed days fit together.

    found     key -> field -> value of all rows, but those of records
    records   key of records -> how many there are
    """
    days = {key.partition(":")[2]: fields for key, fields in found.items() if key.startswith(rows.ledger(""))}
    view, costs, known = View(dict.fromkeys(found), found), Counter[str](), set[str]()
    for date, fields in days.items():
        for name, numbers in _by_policy(rows.ledger(date), fields).items():
            _check_policy(view, fields, date, name, numbers)
            if numbers.get("commits", 0) != records.get(rows.releases(date, name), 0):
                raise DamagedRow(rows.ledger(date))
            costs[date] += numbers.get("cost", 0)
            known |= {rows.costs(date, name), rows.levels(date, name), rows.releases(date, name)}
    for key in found.keys() | records.keys():
        kind = key.partition(":")[0]
        if key not in known if kind in _OF_DATES else kind not in _OTHERS:
            raise DamagedRow(key)
    for stored in found.get(rows.NEXT_POLICIES, {}).values():
        NextPolicy.of(stored)
    spent = {date: number_of(rows.TOTAL, value) for date, value in found.get(rows.TOTAL, {}).items()}
    spent.pop(rows.LIMIT, None)
    if +Counter(spent) != +costs:
        raise DamagedRow(rows.TOTAL)


def _by_policy(key: str, fields: Mapping[str, bytes]) -> dict[str, Counter[str]]:
    """Return policy -> the numbers of its fields of a date, those of one kind added up."""
    found: dict[str, Counter[str]] = {}
    for field, value in fields.items():
        kind, _, rest = field.partition(":")
        name = rest.partition(":")[0]
        if kind == "query":
            reserved_of(key, value)
            found.setdefault(name, Counter())
        elif kind in _KINDS:
            found.setdefault(name, Counter())[kind] += number_of(key, value)
        elif field in ("sequence", "limit"):
            number_of(key, value)
        else:
            raise DamagedRow(key)
    return found


def _check_policy(view: View, fields: Mapping[str, bytes], date: str, name: str, numbers: Counter[str]) -> None:
    """Raise DamagedRow unless a policy's charges, levels and costs of a date fit together."""
    key, charged = rows.costs(date, name), view.found.get(rows.costs(date, name), {})
    costs = [number_of(key, value) for value in charged.values()]
    levels = levels_of(View({rows.levels(date, name): None}, view.found), date, name)
    reserved = [reserved_of(key, value) for field, value in fields.items() if field.startswith(f"query:{name}:")]
    cost = day_cost(levels, numbers.get("cap")) + sum(each.amount for each in reserved)
    if levels != Counter(costs) or sum(costs) != numbers["epsilon"] or cost != numbers["cost"]:
        raise DamagedRow(rows.ledger(date))
    if numbers["fineness"] != numbers["releases"]:
        raise DamagedRow(rows.ledger(date))
