"""The ledger of one date as one policy books it: read from rows, charged, and written back as the rows that changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hatcast.stream.ledger import rows
from hatcast.stream.ledger.day import DayLedger, PolicyDay, Reserved, Total, day_cost
from hatcast.stream.ledger.view import DamagedRow, Draft, View, digits_of, number_of
from hatcast.stream.policy.policy import Policy

_OF_POLICY = ("commits", "releases", "epsilon", "cap", "fineness", "told")


@dataclass(slots=True)
class Book:
    """A date of the ledger, for one policy.

    day       charges of all policies: our own by level, those of others as what they cost
    numbers   the date's and the policy's other numbers, as they are now, by field
    """

    draft: Draft
    name: str
    date: str
    day: DayLedger
    numbers: dict[str, int]
    _stored: "_Stored" = field(repr=False)

    @classmethod
    def read(cls, draft: Draft, name: str, date: str, cap: int | None) -> "Book":
        """Read a date, and require that none of its rows changes meanwhile. Raises DamagedRow, Unread.

        cap   K of the policy; None: the stored one, if it is known
        """
        day, numbers = parse_day(draft.read_date(date), name, date, draft.view)
        ours = day.policies.get(name)
        if ours is not None:
            ours.cap = numbers.get(f"cap:{name}") if cap is None else cap
            ours.hats = day_cost(ours.levels, ours.cap)
        stored = _Stored(
            dict(numbers),
            {} if ours is None else dict(ours.levels),
            {} if ours is None else dict(ours.queries),
            day.limit,
            number_of(rows.ledger(date), draft.view.found.get(rows.ledger(date), {}).get(f"cost:{name}", b"0")),
        )
        return cls(draft, name, date, day, numbers, stored)

    @property
    def recomputed(self) -> int:
        """What the policy's part costs more (1e-9) than is stored of it; below 0 once its K is known again."""
        ours = self.day.policies.get(self.name)
        return (0 if ours is None else ours.cost) - self._stored.cost

    @property
    def queries(self) -> Mapping[str, Reserved]:
        """The policy's reservations."""
        ours = self.day.policies.get(self.name)
        return {} if ours is None else ours.queries

    def count(self, kind: str, more: int = 1) -> int:
        """Add to a number: of the date (`sequence`), else of the policy. Return the sum."""
        name = kind if kind == "sequence" else self._field(kind)
        self.numbers[name] = self.numbers.get(name, 0) + more
        return self.numbers[name]

    def reserve(self, policy: Policy, wanted: Mapping[str, Reserved], total: Total) -> bool:
        """Decide the reservations that are undecided, once and finally. Return whether there were any."""
        return bool(self.day.reserve(policy, wanted, total))

    def check_charge(self, place: str, charge: int) -> None:
        """Check the rows that `charge` needs, before anything is changed. Raises DamagedRow, Unread, TooLarge."""
        key, ours = rows.costs(self.date, self.name), self.day.policies.get(self.name)
        before = self.draft.number(key, place)
        if before and (ours is None or not ours.levels.get(before)):
            raise DamagedRow(rows.levels(self.date, self.name))
        digits_of(key, before + charge)
        digits_of(rows.ledger(self.date), self.numbers.get(self._field("epsilon"), 0) + charge)

    def charge(self, policy: Policy, place: str, charge: int, fineness: int, total: Total) -> bool:
        """Charge a place (1e-9) if day and total have room. `check_charge` was called before."""
        key, ours = rows.costs(self.date, self.name), self.day.policies.get(self.name)
        before = self.draft.number(key, place)
        if before and ours is not None:
            ours.costs[place] = before
        if not self.day.charge(policy, place, charge, total):
            return False
        self.draft.set_number(key, place, before + charge)
        self.numbers[self._field("cap")] = policy.max_hats_per_day
        self.count("releases")
        self.count("epsilon", charge)
        self.count(f"fineness:{fineness}")
        return True

    def write(self) -> None:
        """Write the rows that have changed. Raises TooLarge."""
        draft, key, stored = self.draft, rows.ledger(self.date), self._stored
        ours = self.day.policies.get(self.name, PolicyDay(None))
        for name, number in self.numbers.items():
            if stored.numbers.get(name) != number:
                draft.set_number(key, name, number)
        for query, reserved in ours.queries.items():
            if stored.queries.get(query) != reserved:
                draft.set(key, f"query:{self.name}:{query}", b"%dx%d" % (reserved.places, reserved.epsilon))
        if self.day.limit is not None and self.day.limit != stored.limit:
            draft.set_number(key, "limit", self.day.limit)
        for level in ours.levels.keys() | stored.levels.keys():
            if (places := ours.levels.get(level, 0)) != stored.levels.get(level, 0):
                of = rows.levels(self.date, self.name)
                draft.set(of, str(level), digits_of(of, places) if places else None)
        if ours.cost != stored.cost:
            draft.set_number(key, f"cost:{self.name}", ours.cost)
            draft.set_number(rows.TOTAL, self.date, self.day.cost)
            draft.changes.nonces[rows.TOTAL] = None
        draft.change_date(self.date)

    def _field(self, kind: str) -> str:
        name, colon, rest = kind.partition(":")
        return f"{name}:{self.name}{colon}{rest}"


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the rows of a date have, before the changes."""

    numbers: Mapping[str, int]
    levels: Mapping[int, int]
    queries: Mapping[str, Reserved]
    limit: int | None
    cost: int


def parse_day(fields: Mapping[str, bytes], name: str, date: str, view: View) -> tuple[DayLedger, dict[str, int]]:
    """Return the charges of a date, with those of policy `name` by level, and the numbers of date and policy, by field.

    Raises DamagedRow, Unread.
    """
    key, day, numbers = rows.ledger(date), DayLedger(), dict[str, int]()
    queries = dict[str, Reserved]()
    for row, value in fields.items():
        kind, _, rest = row.partition(":")
        policy, _, query = rest.partition(":")
        if kind == "query":
            if policy == name:
                queries[query] = reserved_of(key, value)
        elif kind == "limit":
            day.limit = number_of(key, value)
        elif kind == "cost" and policy != name:
            day.policies[policy] = PolicyDay(0, hats=number_of(key, value))
        elif kind == "sequence" or (kind in _OF_POLICY and policy == name):
            numbers[row] = number_of(key, value)
    levels = levels_of(view, date, name)
    if levels or queries:
        day.policies[name] = PolicyDay(numbers.get(f"cap:{name}"), levels=levels, queries=queries)
    return day, numbers


def levels_of(view: View, date: str, name: str) -> dict[int, int]:
    """Return e -> number of places with it, of a policy and date. Raises DamagedRow, Unread."""
    key = rows.levels(date, name)
    return {number_of(key, e.encode()): number_of(key, places) for e, places in view.whole(key).items()}


def reserved_of(key: str, value: bytes) -> Reserved:
    """Parse a reservation. Raises DamagedRow."""
    places, _, epsilon = value.partition(b"x")
    return Reserved(number_of(key, places), number_of(key, epsilon))


def total_of(draft: Draft, policy: Policy) -> Total:
    """Return the cost of all days, as far as a limit binds it: without one nothing of it is read.

    Requires that it does not change meanwhile; without a limit, that none is stored. Raises DamagedRow, Unread.
    """
    limit = draft.compare(rows.TOTAL, rows.LIMIT)
    if limit is None and policy.total_limit_nano is None:
        return Total()
    draft.compare(rows.NONCES, rows.TOTAL)
    return whole_total(draft.view)


def whole_total(view: View) -> Total:
    """Return the cost of all days. Raises DamagedRow, Unread."""
    total = Total()
    for name, value in view.whole(rows.TOTAL).items():
        if name == rows.LIMIT:
            total.limit = number_of(rows.TOTAL, value)
        else:
            total.spent += number_of(rows.TOTAL, value)
    return total
