"""A clock of one process only, by libfaketime: a test sets it ahead or behind, also while the process runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.services.absent import ServiceAbsent, hidden

# Where Debian, Fedora, Alpine and a build from source put it. The form for processes with threads.
_PLACES: Final = ("/usr/lib/*/faketime", "/usr/lib64/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime")
_LIBRARY: Final = "libfaketimeMT.so.1"


class FakeClock:
    """The wall clock of the processes that are started with `env`. The monotonic clock stays true."""

    def __init__(self, folder: Path, offset_s: int) -> None:
        """Args: `folder`, where the offset is kept. Raises ServiceAbsent without libfaketime."""
        self._file = folder / "faketime"
        self.env: Mapping[str, str] = {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # time-outs and heartbeats go by it
            # Else its timed waits are busy loops: a thread that waits for the interpreter's lock holds all others up.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
        self.set(offset_s)

    def set(self, offset_s: int) -> None:
        """Set the clock so many seconds ahead of this machine's, or behind it, at once."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset_s:+}\n")
        fresh.replace(self._file)


def library() -> Path:
    """The library that a process loads. Raises ServiceAbsent where there is none."""
    found = (path for place in _PLACES for path in sorted(Path("/").glob(f"{place.lstrip('/')}/{_LIBRARY}")))
    if hidden("faketime") or (first := next(found, None)) is None:
        raise ServiceAbsent("no libfaketime", "faketime")
    return first
