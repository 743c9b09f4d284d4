"""Input of a comparison: a file of counts, or one HAT of a recording."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np

from hatcast.lab.evaluate.simulation import VALUES, Means, Readings, recorded, vectors
from hatcast.stream.errors import UNREADABLE, HatcastError, RecordingError
from hatcast.stream.estimators.grouping import Counts
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Format

Scaling = tuple[Literal["samples", "users"], int]  # N times the readings of every user, or N copies of every user
_READINGS_MAX: Final = 2**31  # of all users: products of two such numbers fit into 64 bits


@dataclass(frozen=True, slots=True, eq=False)
class SampledHat:
    """Users of one HAT. counts: [L] largest first; means: drawn for each run; dimensions, unit: of a reading."""

    counts: Counts
    means: Means
    upper_bound_milli: int
    dimensions: int = 1
    unit: str = "km/h"
    # share of the recorded users' means that are at the upper bound; None: means are simulated
    at_bound: float | None = None


class _Published(Readings, frozen=True, rename={"upper_bound": "U"}, kw_only=True):
    """File of counts, optionally with the statistics of their readings."""

    counts: list[int]


def hat_of_counts(path: Path, values: str, scaling: Scaling | None, dimensions: int) -> tuple[SampledHat, str]:
    """Return a simulated HAT with the counts of a file, and its name. Raises RecordingError."""
    try:
        given = msgspec.json.decode(path.read_bytes(), type=list[int] | _Published)
    except OSError as error:
        raise RecordingError(str(path), f"cannot be read ({error.strerror})", "check the path") from None
    except UNREADABLE:
        raise RecordingError(str(path), "has no counts", 'write [12, 7] or {"counts": [12, 7]}') from None
    counts, readings = (given, Readings()) if isinstance(given, list) else (given.counts, given)
    if not counts or min(counts) < 1 or sum(counts) >= _READINGS_MAX:
        raise RecordingError(str(path), "has a count below 1, no count, or too many readings", "write counts from 1 on")
    if not (0 < readings.upper_bound < 2e6 and readings.variance > 0):
        raise RecordingError(str(path), "has a U or a variance out of range", "write numbers above 0")
    scaled = scale(np.array(sorted(counts, reverse=True), np.int64), scaling)
    upper_bound_milli = round(readings.upper_bound * 1000)
    if dimensions > 1:
        hat = SampledHat(scaled, vectors(scaled, readings, dimensions), upper_bound_milli, dimensions)
        return hat, f"{path.name}, vectors of {dimensions} coordinates"
    return SampledHat(scaled, VALUES[values](scaled, readings), upper_bound_milli), f"{path.name}, values {values}"


def hat_of_recording(
    source: tuple[Sequence[Path], Format, Policy],
    key: str | None,
    scaling: Scaling | None,
    progress: Callable[[int], None],
) -> tuple[SampledHat, str]:
    """Return a HAT of a recording, with the same speeds in every run, and its name. Raises HatcastError.

    source   (files, their format, policy)
    key      `cell/date/slot`; None: the HAT with most users
    """
    from hatcast.lab.days import open_days
    from hatcast.stream.release.hats import users_of

    paths, feed, policy = source
    with open_days(paths, feed) as recordings:
        retained, _ = recordings.fold(policy, progress)
    found = {f"{hat.cell}/{hat.slot}": users_of(retained.chunks(hat).readings) for hat in retained.hats()}
    hats = {each: users for each, users in found.items() if len(users.counts)}
    name = ", ".join(path.name for path in paths)
    if not hats:
        fix = "check policy.hours, and the file with `hatcast check`"
        raise RecordingError(", ".join(map(str, paths)), "has no HAT with a reading", fix)
    if key is None:
        key = max(sorted(hats), key=lambda each: len(hats[each].counts))
    elif key not in hats:
        raise HatcastError(f"--hat: {key} has no reading; `hatcast batch --contributions` lists the HATs with readings")
    users = hats[key]
    repeated = scaling[1] if scaling and scaling[0] == "users" else 1
    means = np.repeat(users.sums / users.counts, repeated)
    unit = policy.released_value.unit
    at_bound = float((means >= policy.upper_bound).mean())
    hat = SampledHat(scale(users.counts, scaling), recorded(means), policy.upper_bound, unit=unit, at_bound=at_bound)
    return hat, f"{name}, {key}"


def scale(counts: Counts, scaling: Scaling | None) -> Counts:
    """Multiply the counts by N, or repeat each N times. Raises HatcastError if the result is too large to simulate."""
    if scaling is None:
        return counts
    kind, times = scaling
    if int(counts.sum()) * times >= _READINGS_MAX:
        raise HatcastError(f"--scaling: {times} times as many {kind} are too many readings; use a smaller number")
    return counts * times if kind == "samples" else np.repeat(counts, times)
