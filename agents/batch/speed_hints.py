"""Reasons for undecodable records in a recording, such as missing speeds: for hints."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Final

from hatcast.stream.readings.formats import Format, Recorded
from hatcast.stream.readings.recording import NO_SPEED

_SAMPLE: Final = 2_000  # first records
_DERIVE: Final = "they lack only their speed: `--derive-speed` (in Python `derive_speed`) derives it from positions"
_TOO_FAR: Final = (
    "no speed follows from their positions: those of one vehicle and day have to be 10 s to 150 s apart: docs/feeds.md"
)


def cause_of_undecodable(records: Iterable[tuple[int, Recorded]], feed: Format) -> str | None:
    """Return the cause that most of the first undecodable records share, without any of their data, else None.

    That they have a position but no speed comes first, because there is an option for it.
    """
    sample = [recorded for _, recorded in islice(records, _SAMPLE) if recorded.reading is None]
    lacking = sum(_has_position(recorded, feed) for recorded in sample)
    if 2 * lacking > len(sample):
        return _DERIVE if feed.derivation is None else _TOO_FAR
    problem, count = next(iter(Counter(recorded.problem for recorded in sample).most_common(1)), (None, 0))
    return problem if 2 * count > len(sample) else None


def _has_position(recorded: Recorded, feed: Format) -> bool:
    if feed.derivation is not None:
        return recorded.problem == NO_SPEED
    return feed.without_speed is not None and feed.without_speed.decode(recorded.raw) is not None
