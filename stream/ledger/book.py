"""The ledger of one date as one policy books it: read from rows, charged, and written back as the rows that changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hatcast.stream.ledger import rows
from hatcast.stream.ledger.day import DayLedger, PolicyDay, Reserved, Total, day_cost
from hatcast.stream.ledger.proposals import Proposal
from hatcast.stream.ledger.view import DamagedRow, Draft, View, digits_of, number_of
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import CELL_SELECTION

_OF_POLICY = ("commits", "releases", "epsilon", "cap", "fineness", "told")


@dataclass(slots=True)
class Book:
    """A date of the ledger, for one policy."""

    draft: Draft
    name: str
    date: str
    day: DayLedger  # charges of all policies: our own by level, those of others as what they cost
    numbers: dict[str, int]  # the date's and the policy's other numbers, as they are now, by field
    _stored: "_Stored" = field(repr=False)

    @classmethod
    def read(cls, draft: Draft, name: str, date: str, cap: int | None) -> "Book":
        """Read a date, and require that none of its rows changes meanwhile. Raises DamagedRow, Unread.

        cap   K of the policy; None: the stored one, if it is known
        """
        fields = draft.read_date(date)
        day, numbers = parse_day(fields, name, date, draft)
        ours = day.policies.get(name) or PolicyDay(None)
        charged = sum(e * places for e, places in ours.levels.items())
        if charged != numbers.get(f"epsilon:{name}", 0):  # without its levels a date would cost less than it has
            raise DamagedRow(rows.levels(date, name))
        ours.cap = numbers.get(f"cap:{name}") if cap is None else cap
        ours.hats_cost = day_cost(ours.levels, ours.cap)
        cost = number_of(rows.ledger(date), fields.get(f"cost:{name}", b"0"))
        stored = _Stored(dict(numbers), dict(ours.levels), dict(ours.queries), day.limit, cost)
        return cls(draft, name, date, day, numbers, stored)

    @property
    def recomputed(self) -> int:
        """Difference (1e-9) of the policy's cost on this date to the stored one; below 0 once its K is known again."""
        return (self.day.policies.get(self.name) or PolicyDay(None)).cost - self._stored.cost

    @property
    def queries(self) -> Mapping[str, Reserved]:
        """The policy's reservations."""
        return (self.day.policies.get(self.name) or PolicyDay(None)).queries

    def count(self, kind: str, more: int = 1, of: str = "") -> int:
        """Add to a number: of the date (`sequence`), else of the policy. Return the sum."""
        name = self._field(kind, of)
        self.numbers[name] = number = self.numbers.get(name, 0) + more
        return number

    def number(self, kind: str) -> int:
        """Return a number, as `count` names it; 0 if none is stored."""
        return self.numbers.get(self._field(kind), 0)

    def raise_to(self, kind: str, number: int) -> None:
        """Raise a number, as `count` names it, unless it is greater."""
        if number > self.number(kind):
            self.count(kind, number - self.number(kind))

    def reserve_if_room(self, policy: Policy, wanted: Mapping[str, Reserved], total: Total) -> bool:
        """Decide the reservations that are undecided, once and finally. Return whether there were any."""
        return bool(self.day.reserve_if_room(policy, wanted, total))

    def check_charge(self, place: str, charge: int) -> int:
        """Return e of a place (1e-9). Raises DamagedRow, Unread, TooLarge if a charge would, before any change."""
        key, ours = rows.costs(self.date, self.name), self.day.policies.get(self.name)
        before = self.draft.number(key, place)
        if before and (ours is None or not ours.levels.get(before)):
            raise DamagedRow(rows.levels(self.date, self.name))
        digits_of(key, before + charge)
        digits_of(rows.ledger(self.date), self.number("epsilon") + charge)
        return before

    def charge(self, policy: Policy, proposal: Proposal, before: int, total: Total) -> bool:
        """Charge a place that had `before` (1e-9) if day and total have room."""
        place, charge, ours = proposal.place, proposal.charge, self.day.policies.get(self.name)
        if before and ours is not None:
            ours.costs[place] = before
        if not self.day.charge_if_room(policy, place, charge, total):
            return False
        self.draft.set_number(rows.costs(self.date, self.name), place, before + charge)
        self.numbers[self._field("cap")] = policy.max_hats_per_day
        self.count("releases")
        self.count("epsilon", charge)
        self.count("fineness", of=f":{proposal.fineness}")
        return True

    def adopt(self, place: str, charge: int, fineness: int) -> None:
        """Book a charge (1e-9) of a record that was sent, whatever the limits. Raises DamagedRow, TooLarge, Unread."""
        self._move(place, charge)
        self.count("releases")
        self.count("epsilon", charge)
        self.count("fineness", of=f":{fineness}")

    def take_back(self, place: str, charge: int, fineness: int) -> None:
        """Remove the charge (1e-9) of an unsent record. Raises DamagedRow, Unread."""
        self._move(place, -charge)
        self.count("releases", -1)
        self.count("epsilon", -charge)
        if self.numbers.get(self._field("fineness", f":{fineness}")):  # of another policy's record it is not known
            self.count("fineness", -1, f":{fineness}")

    def restore(self, query: str, places: int, epsilon: int) -> None:
        """Restore a reservation that a topic reports, or may have: the date has at least as many places from now on."""
        told, known = f"told:{self.name}:{query}", self.queries.get(query)
        self.numbers[told] = max(self.numbers.get(told, 0), places)
        if known is None or known.places < places:
            self._ours.queries[query] = Reserved(places, epsilon)

    def restore_cap(self, cap: int) -> None:
        """Restore the policy's K, unless it is known."""
        if self.numbers.setdefault(self._field("cap"), cap) == cap:
            self._ours.cap = cap

    def lower_limit(self, limit: int) -> None:
        """Lower the date's limit (1e-9) to that of a policy that has charged."""
        self.day.limit = limit if self.day.limit is None else min(self.day.limit, limit)

    def unreserve(self) -> None:
        """Remove the reservations that no topic has reported, but for a cost that is spent."""
        queries = self._ours.queries
        for query, reserved in list(queries.items()):
            told = self.numbers.get(f"told:{self.name}:{query}")
            if query == CELL_SELECTION:
                continue
            if told is None:
                del queries[query]  # the next release decides it again
            elif told < reserved.places:
                queries[query] = Reserved(told, reserved.epsilon)

    def write(self) -> None:
        """Write the rows that have changed, and a new nonce if any has. Raises DamagedRow, TooLarge."""
        draft, key, stored = self.draft, rows.ledger(self.date), self._stored
        ours = self.day.policies.get(self.name, PolicyDay(None))
        ours.hats_cost = day_cost(ours.levels, ours.cap)
        new = self._changed_levels(ours)
        for name, number in self.numbers.items():
            if stored.numbers.get(name) != number:
                new[key, name] = digits_of(key, number)
        for query in ours.queries.keys() | stored.queries.keys():
            if (reserved := ours.queries.get(query)) != stored.queries.get(query):
                new[key, f"query:{self.name}:{query}"] = None if reserved is None else reserved.stored
        if self.day.limit is not None and self.day.limit != stored.limit:
            new[key, "limit"] = digits_of(key, self.day.limit)
        if ours.cost != stored.cost:
            new[key, f"cost:{self.name}"] = digits_of(key, ours.cost)
            new[rows.TOTAL, self.date] = digits_of(rows.TOTAL, self.day.cost)
            draft.changes.nonces[rows.TOTAL] = None
        for (changed, name), value in new.items():
            draft.set(changed, name, value)
        if new:
            draft.change_date(self.date)

    def _changed_levels(self, ours: PolicyDay) -> dict[tuple[str, str], bytes | None]:
        key, stored, new = rows.levels(self.date, self.name), self._stored.levels, dict[tuple[str, str], bytes | None]()
        for level in ours.levels.keys() | stored.keys():
            if (places := ours.levels.get(level, 0)) != stored.get(level, 0):
                new[key, str(level)] = digits_of(key, places) if places else None
        return new

    @property
    def _ours(self) -> PolicyDay:
        return self.day.policies.setdefault(self.name, PolicyDay(self.numbers.get(self._field("cap"))))

    def _move(self, place: str, change: int) -> None:
        """Add to e of a place (1e-9), or subtract from it."""
        key, levels = rows.costs(self.date, self.name), self._ours.levels
        before = self.draft.number(key, place)
        after = before + change
        if before:
            if not levels.get(before):
                raise DamagedRow(rows.levels(self.date, self.name))
            levels[before] -= 1
        if after:
            levels[after] = levels.get(after, 0) + 1
        self.draft.set(key, place, digits_of(key, after) if after else None)

    def _field(self, kind: str, of: str = "") -> str:
        return kind if kind == "sequence" else f"{kind}:{self.name}{of}"


@dataclass(slots=True)
class _Stored:
    """Stored rows of a date, before the changes."""

    numbers: Mapping[str, int]
    levels: Mapping[int, int]
    queries: Mapping[str, Reserved]
    limit: int | None
    cost: int


def parse_day(
    fields: Mapping[str, bytes], name: str, date: str, view: View | Draft
) -> tuple[DayLedger, dict[str, int]]:
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
        elif kind == "cost" and query:
            raise DamagedRow(key)  # it would hide the cost of the policy whose name it begins with
        elif kind == "cost" and policy != name:
            day.policies[policy] = PolicyDay(0, hats_cost=number_of(key, value))
        elif kind == "sequence" or (kind in _OF_POLICY and policy == name):
            numbers[row] = number_of(key, value)
    levels = levels_of(view, date, name)
    if levels or queries:
        day.policies[name] = PolicyDay(numbers.get(f"cap:{name}"), levels=levels, queries=queries)
    return day, numbers


def levels_of(view: View | Draft, date: str, name: str) -> dict[int, int]:
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


def lower_total_limit(draft: Draft, limit: int) -> None:
    """Lower the limit of all days (1e-9) to that of a policy that has charged. Raises DamagedRow, TooLarge, Unread."""
    draft.compare(rows.TOTAL, rows.LIMIT)
    stored = draft.get(rows.TOTAL, rows.LIMIT)
    if stored is None or limit < number_of(rows.TOTAL, stored):
        draft.set_number(rows.TOTAL, rows.LIMIT, limit)
        draft.changes.nonces[rows.TOTAL] = None


def whole_total(view: View) -> Total:
    """Return the cost of all days. Raises DamagedRow, Unread."""
    total = Total()
    for name, value in view.whole(rows.TOTAL).items():
        if name == rows.LIMIT:
            total.limit = number_of(rows.TOTAL, value)
        else:
            total.spent += number_of(rows.TOTAL, value)
    return total
