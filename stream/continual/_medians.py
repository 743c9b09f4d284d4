"""Private bins of medians, for the truncation of kind `withhold_release`.

N items lie in bins of one width. A binary search for the bin of the median asks at each step for the number of items
below an edge, with noise. A change of one item moves each of these numbers by at most 1, whatever the answers before.
So the l1 distance is at most the number of steps.

If all noises are within N / 4, at least a quarter of the items are not above the bin found, and at least a quarter not
below it: at the last edge that was found too low fewer than N / 2 + N / 4 items lie below, and so on the other side.
If then less than a quarter of the items are further than d from s m on each side, the bin has a point within d of s m;
so s m +- d is within 2 d of the bin (`Group.lowest`).
"""

import numpy as np

from hatcast.stream.continual._digits import Integers
from hatcast.stream.continual._shares import Stream
from hatcast.stream.mechanisms import VectorNoise


def median_bins(cells: list[Integers], stream: Stream, noise: VectorNoise) -> list[int]:
    """Return the bin of each cell's median. Each step draws the noise of all cells at once.

    cells  items of each cell
    """
    step = stream.group.step
    low = np.zeros(len(cells), np.int64)
    high = np.full(len(cells), 1 << stream.queries, np.int64)
    for _ in range(stream.queries):
        middle = (low + high) // 2
        below = [int((items < edge).sum()) for items, edge in zip(cells, (middle * step).tolist(), strict=True)]
        noisy = stream.counts.draw(np.array(below, np.int64), noise)
        upper = 2 * noisy < np.array([len(items) for items in cells], np.int64)
        low, high = np.where(upper, middle, low), np.where(upper, high, middle)
    found: list[int] = np.minimum(low, stream.group.bins - 1).tolist()
    return found
