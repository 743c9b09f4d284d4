"""Parts of made-up inputs: packed contributions, as the fold stores them, and random means of a user."""

from collections.abc import Sequence
from typing import Final

from hatcast.lab.audit.families import RandomNumbers
from hatcast.stream.fold.packing import Row, pack, strip

_CHUNK: Final = 64


def chunks_of(users: Sequence[tuple[int, int, int]], others: Sequence[tuple[int, ...]] = ()) -> list[bytes]:
    """Pack users into chunks.

    users    (pseudonym, readings, sum in milli-units) of each
    others   sums of the further values of each, of a policy with several
    """
    rows = [
        Row(
            pseudonym.to_bytes(8, "big"),
            count,
            total,
            -(-total // count),
            (1 << min(count, _CHUNK)) - 1,
            others[at] if others else (),
        )
        for at, (pseudonym, count, total) in enumerate(users)
    ]
    return [pack(rows[at : at + _CHUNK]) for at in range(0, len(rows), _CHUNK)]


def random_share(random: RandomNumbers) -> float:
    """Return a user's mean as a share of the range: an end of the range in two of three cases."""
    return (0.0, 1.0, random.random())[random.integers(0, 3)]


def stripped(chunks: Sequence[bytes]) -> list[bytes]:
    """Return the part of chunks that is retained for queries."""
    return [strip(chunk) for chunk in chunks]
