"""States that are stored between two dates: of a tracker, and of a reader of its records.

Both have floats as they are, so who goes on from one does exactly what the one that stored it would have done. Arrays
are little-endian bytes, row by row.    [docs/specification/tracker.md, sections 4 and 5]
"""

from collections.abc import Iterable, Sequence
from typing import Final, Self

import msgspec

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.tracker.model import SHARED, Covariance, Means, bytes_of, floats_of
from hatcast.stream.tracker.prior import PriorScale
from hatcast.stream.tracker.prior_scale import SCALES, Evidence
from hatcast.stream.tracker.schedule import Schedule
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.track import Calibration, Track

TRACKER_VERSION: Final = 5
SMOOTHER_VERSION: Final = 7  # of the model and of the format: another version's state is not read


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    """The model between two dates, without HATs: a function of public counts and released numbers."""

    cells: tuple[str, ...]  # names, in the order of their numbers
    # prior_scale, shared, slopes, variance, drifted: as in `Covariance`: float64 [29, 29], [C, 29], [C], [C]
    prior_scale: PriorScale
    shared: bytes
    slopes: bytes
    variance: bytes
    drifted: bytes
    # means, intercepts: as in `Means`: float64 [29], [C]
    means: bytes
    intercepts: bytes

    @classmethod
    def of(cls, cells: Iterable[str], covariance: Covariance, means: Means) -> Self:
        """Return the state of a model. cells: names, in the order of their numbers."""
        return cls(
            cells=tuple(cells),
            prior_scale=covariance.prior_scale,
            shared=bytes_of(covariance.shared),
            slopes=bytes_of(covariance.slopes),
            variance=bytes_of(covariance.variance),
            drifted=bytes_of(covariance.drifted),
            means=bytes_of(means.shared),
            intercepts=bytes_of(means.intercepts),
        )

    @property
    def fits(self) -> bool:
        """Whether each array has its length."""
        cells = len(self.cells)
        of_cells = (self.variance, self.drifted, self.intercepts)
        sizes = ((self.shared, SHARED**2), (self.slopes, cells * SHARED), (self.means, SHARED))
        return all(len(array) == 8 * numbers for array, numbers in (*sizes, *((each, cells) for each in of_cells)))

    def restore(self, covariance: Covariance, means: Iterable[Means]) -> None:
        """Put the state into a new model."""
        cells = len(self.cells)
        covariance.rescale(self.prior_scale)
        covariance.shared = floats_of(self.shared, SHARED, SHARED)
        covariance.slopes = floats_of(self.slopes, cells, SHARED)
        covariance.variance, covariance.drifted = floats_of(self.variance, cells), floats_of(self.drifted, cells)
        for each in means:
            each.shared, each.intercepts = floats_of(self.means, SHARED), floats_of(self.intercepts, cells)


class TrackerState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a tracker between two days: all later queries and estimates follow from it."""

    policy_id: str  # of its policy
    date: str  # local date through which days are settled
    model: ModelState
    # seen, hours: as in `Outlook`; float64 [C]
    seen: bytes
    hours: int
    newest_ms: int | None  # start of the newest slot, ms UTC; None: there was none
    calibration: tuple[float, float]  # the two running means of `Calibration`
    timetable: Timetable | None  # from which cells of the next date take their scheduled speeds; None: they have none
    evidence: bytes  # as in `Evidence`: float64 [37]; empty if the prior is no guess
    version: int = TRACKER_VERSION

    def encoded(self) -> bytes:
        """Return the bytes, as `decoded` reads them."""
        return _ENCODER.encode(self)

    @classmethod
    def decoded(cls, stored: bytes | None, policy_id: str) -> Self | None:
        """Return the state; None if they are missing, or of another version or policy."""
        if stored is None:
            return None
        try:
            state = msgspec.msgpack.decode(stored, type=cls)
        except UNREADABLE:
            return None
        fits = state.model.fits and len(state.seen) == 8 * len(state.model.cells)
        fits = fits and len(state.evidence) in (0, 8 * SCALES)
        return state if fits and (state.version, state.policy_id) == (TRACKER_VERSION, policy_id) else None

    def restore(self, schedule: Schedule, tracks: Sequence[Track]) -> None:
        """Put the state into a new schedule and new tracks."""
        cells = self.model.cells
        schedule.add_cells(cells)
        self.model.restore(schedule.covariance, [track.means for track in tracks])
        schedule.seen, schedule.hours = floats_of(self.seen, len(cells)), self.hours
        for track in tracks:
            track.calibration = Calibration(self.calibration)
            if track.evidence is not None and self.evidence:
                track.evidence = Evidence(floats_of(self.evidence, SCALES))


_ENCODER: Final = msgspec.msgpack.Encoder()


class SmootherState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a smoother at the beginning of a local date.

    It is small, since it has no HATs. Whoever continues from it reads the records of its date and of later ones.
    """

    policy_id: str
    date: str  # no slot of this date or later was taken; "" if none was
    model: ModelState
    start_ms: int | None  # start of the last slot that was taken, ms UTC
    calibration: tuple[float, ...]  # `means` of the calibration
    usual: tuple[float, float]  # mean of ln(users), centred, over recent HATs, and the number of these
    version: int = SMOOTHER_VERSION
