"""Reading the output topics ends in order when it is given up in the middle."""

import asyncio
import time
from collections.abc import Generator
from typing import Any

import pytest

from hatcast.agents.recovery.adopter import Adopter
from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.starts import Start
from hatcast.stream.ledger.adoption import OutputPartition, Position
from hatcast.stream.ledger.recovery import RecoveryCheck
from tests.replayed import policy_of


class SlowReader:
    """Blocks, as a read of Kafka does."""

    closed = False

    def read(self, *_: Any) -> Generator[Any, Any]:
        try:
            time.sleep(0.3)
            yield
        finally:
            self.closed = True

    def close(self) -> None:
        """What else is open: nothing."""


async def test_a_read_that_is_given_up_after_a_time_is_closed_and_says_so() -> None:
    reader = SlowReader()
    store: Any = None  # the position is stored already, and nothing is adopted
    slow: Any = reader
    adopter = Adopter(policy_of(name="p"), store, slow)
    partition, start = OutputPartition("m", 0), Position("", 0)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            domain = Domain(frozenset(), frozenset())
            starts = {partition: Start(start, start, unsealed=0, end=5, lost="")}
            await adopter.adopt(domain, RecoveryCheck.finished("t"), starts, {partition: Position("", 5)})
    assert reader.closed
