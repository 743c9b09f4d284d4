"""`over_speed_limit`: how many users a day went faster than a limit, in one cell and slot.    [T III.B, Query 2]"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query_keys import Query
from hatcast.stream.queries._interface import RetainedDay


class OverSpeedLimit:
    """(1 / D) sum over D days of the number of users whose greatest speed of that day is strictly above the limit.

    Sensitivity: 1 / D, under `replace` and `add_remove`. One user's day is in one of the D numbers, and is counted
    there or not. D is public: which days are missing is told by the log that was lost, or under `replace` by counts.
    """

    unit: str = "vehicles/day"

    def value(self, days: Sequence[RetainedDay], query: Query) -> Fraction:
        """The mean number. See QueryKind."""
        over = sum(int((day.maxima > query.speed_limit).sum()) for day in days)
        return Fraction(1000 * over, len(days))

    def sensitivity(self, user_days: int, days: int, policy: Policy) -> Fraction:
        """1 / D. See QueryKind."""
        del user_days, policy
        return Fraction(1000, days)

    def top(self, policy: Policy) -> int | None:
        """There may be any number. See QueryKind."""
        del policy
        return None


KIND: Final = OverSpeedLimit()
