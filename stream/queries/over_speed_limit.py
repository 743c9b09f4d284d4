"""`over_speed_limit`: mean daily number of users above a speed limit, in one cell and slot.    [T IV.D]"""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final

from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import Query
from hatcast.stream.queries._interface import RetainedDay

_GRID_OF_VALUES: Final = Decimal("0.001")


class OverSpeedLimit:
    """(1 / D) sum over D days of the number of users whose maximum speed on that day is strictly above the limit.

    Sensitivity: 1 / D, under `replace` and `add_remove`. One user's day contributes 0 or 1 to one of the D numbers. D
    is public: the missing days follow from records that the log has lost, or under `replace` from counts.
    """

    def unit(self, policy: Policy) -> str:
        """Return the unit of the number. See QueryKind."""
        del policy
        return "vehicles/day"

    def grid(self, policy: Policy) -> Grid:
        """Return the grid of numbers: that of speeds, and a thousandth with another value. See QueryKind."""
        return Grid(policy.grid if policy.value is None else _GRID_OF_VALUES)

    def value(self, days: Sequence[RetainedDay], query: Query) -> Fraction:
        """Return the mean number. See QueryKind."""
        if query.speed_limit is None:
            raise ValueError("no speed limit was requested: the query is not answered")
        over = sum(int((day.maxima > query.speed_limit).sum()) for day in days)
        return Fraction(1000 * over, len(days))

    def sensitivity(self, user_days: int, days: int, policy: Policy) -> Fraction:
        """Return 1 / D. See QueryKind."""
        del user_days, policy
        return Fraction(1000, days)

    def top(self, policy: Policy) -> int | None:
        """Return None: the number is unbounded. See QueryKind."""
        del policy
        return None


KIND: Final = OverSpeedLimit()
