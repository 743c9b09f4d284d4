"""Units that times and charges are counted in."""

import math
from decimal import Decimal
from functools import lru_cache
from typing import Final

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
NANO: Final = 1_000_000_000  # charges are integers of 1e-9 epsilon, rounded up


@lru_cache(maxsize=64)  # of few policies, and of every record that is taken back
def nano(epsilon: float) -> int:
    """An epsilon as a charge: integer 1e-9, rounded up so that a ledger never shows less than was spent."""
    return math.ceil(Decimal(repr(epsilon)) * NANO)


def nano_within(limit: float) -> int:
    """A limit in 1e-9, rounded down so that no ledger allows more than was promised."""
    return int(Decimal(repr(limit)) * NANO)
