"""`hatcast`, and a mutant of it, in a process whose clock a test sets.

    pipeline.start("worker", command=PRODUCT, env=clock.env)

A process from the start: libfaketime cannot get into a forked one.
"""

import os
import sys
from collections.abc import Sequence
from typing import Final

from hatcast.stream.fold.partition_fold import PartitionFold

PRODUCT: Final = [sys.executable, "-m", __name__, "product"]
HASTY: Final = [sys.executable, "-m", __name__, "hasty"]


def product() -> None:
    """Nothing is broken."""


def hasty() -> None:
    """A worker waits for no record: what is dated ahead of its clock is rejected."""

    def count_within_max_ahead(self: PartitionFold[bytes], now_ms: int, timestamps: Sequence[int]) -> int:
        del self, now_ms
        return len(timestamps)

    PartitionFold.count_within_max_ahead = count_within_max_ahead  # type: ignore[method-assign,assignment]  # this is what a mutant is


def load_librdkafka() -> None:
    """Load it with the true clock: it waits until a time by `cnd_timedwait`, which libfaketime does not know of.

    With the other clock, each of its waits would be over at once or last an hour longer.
    """
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | os.RTLD_DEEPBIND)  # its own libraries first, before those that are preloaded
    import confluent_kafka

    assert confluent_kafka.libversion()
    sys.setdlopenflags(flags)


if __name__ == "__main__":
    load_librdkafka()
    {"product": product, "hasty": hasty}[sys.argv.pop(1)]()
    from hatcast.agents.cli import main

    main()
