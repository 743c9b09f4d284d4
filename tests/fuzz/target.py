"""One target of the search, and what no input of any target may do."""

import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

CPU_MAX_S: Final = 2.0
MEMORY_MAX_KIB: Final = 384 << 10
SECRET: Final = "SECRETBUS"
"""The seeds' vehicles begin with it: no error's text may have it."""


class Finding(AssertionError):
    """An input broke a property. The message has no data of the input."""


@dataclass(frozen=True, slots=True)
class Target:
    """Code that takes bytes of strangers.

    run       runs the code on one input; anything that it raises is a finding
    seeds     inputs from which the search begins
    max_bytes of an input
    share     of the time, relative to the other targets
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    max_bytes: int = 8_192
    share: float = 1.0


def check_limits(run: Callable[[bytes], None], data: bytes) -> tuple[float, int]:
    """Run a target on one input; return its processor time (s) and the peak memory of this process (KiB).

    Raises Finding if the input takes too long, or raises the peak by too much; and what the target raises.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    run(data)
    took = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if took > CPU_MAX_S:
        raise Finding(f"an input of {len(data)} bytes takes {took:.1f} s of processor time")
    if peak - before > MEMORY_MAX_KIB:
        raise Finding(f"an input of {len(data)} bytes takes {(peak - before) >> 10} MiB of memory")
    return took, peak


def check_message(error: BaseException) -> None:
    """Raise Finding unless an error is one line and names no vehicle."""
    text = str(error)
    if "\n" in text or not text.strip():
        raise Finding("an error is not one line")
    if SECRET in text:
        raise Finding("an error's text has data of the input")
