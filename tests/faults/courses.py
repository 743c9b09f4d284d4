"""What counts alone make a tracker ask: its queries of each date of a dumped log, folded again in this process.

A design does not depend on released numbers, so none are read here, and no noise is drawn. It depends on the state with
which the tracker begins the date: where Redis has lost it, that is the state after any earlier date, or none.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date as local_date
from datetime import timedelta
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

from hatcast.agents.batch.fold import Job, fold_dump
from hatcast.agents.batch.retention import RetainChunks, RetainedHat
from hatcast.agents.config.settings import Settings
from hatcast.agents.recordings.dump_file import DUMP, Dump
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.worker.folds import fold_maker
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.fold.watermark import closes_at
from hatcast.stream.mechanisms import Noisy
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.pseudonyms import KEY_BYTES, Pseudonyms
from hatcast.stream.release.encoding import exact_json
from hatcast.stream.release.tracker import PolicyTracker, hat_users
from hatcast.stream.release.tracker_records import TrackerRelease
from tests.faults.facts import NANO, Asked, Course

_PSEUDONYMS: Final = Pseudonyms(bytes(KEY_BYTES))  # any: no design depends on who a user is
_NOW_MS: Final = 1_800_000_000_000  # after every record


class _Silent:
    """No noise."""

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        return Noisy(value, distance / epsilon)


@dataclass(frozen=True)
class Courses:
    """As `Log` has them."""

    courses: Mapping[str, Sequence[Course]]
    settled: frozenset[str]


def courses_of(dump: Path, settings: Settings, end_ms: int) -> Courses:
    """The courses of each date that has HATs which are over. Every partition's watermark ends at `end_ms`."""
    policy, calendar = settings.policy, Calendar(settings.policy)
    retained = _fold(dump, settings)
    states: list[bytes | None] = [None]
    found: dict[str, list[Course]] = {}

    def is_final(hat: RetainedHat) -> bool:
        slot = calendar.slot_named(*hat.slot.split("/"))
        assert slot is not None
        return closes_at(slot, policy) <= end_ms

    settled = set()
    for date, hats in groupby(filter(is_final, retained.hats()), lambda hat: hat.date):
        of_date = list(hats)
        if is_over(policy, date, end_ms):
            settled.add(date)
        runs = [_course(policy, date, of_date, retained, state, settles=date in settled) for state in states]
        found[date] = [course for course, _ in runs]
        states = [*(state for _, state in runs), *states]  # first that of a tracker that lost nothing
    return Courses(found, frozenset(settled))


def is_over(policy: Policy, date: str, watermark_ms: int) -> bool:
    """Whether no partition accepts readings of a local date any more."""
    following = (local_date.fromisoformat(date) + timedelta(days=1)).isoformat()
    return Calendar(policy).previous_day_end(following) + policy.lateness_ms <= watermark_ms


def _fold(dump: Path, settings: Settings) -> RetainChunks:
    policy, users, retained = settings.policy, FoldUsers(_PSEUDONYMS), RetainChunks()
    with open_recording([dump], DUMP) as recording:
        lines = Dump(recording, dump.name)
        make = fold_maker(policy, Calendar(policy), users, settings, lines.head.partitions)
        fold_dump(lines, Job(policy, users, _NOW_MS, retained, lambda _: None), make)
    return retained


def _course(
    policy: Policy,
    date: str,
    hats: Sequence[RetainedHat],
    retained: RetainChunks,
    state: bytes | None,
    *,
    settles: bool,
) -> tuple[Course, bytes]:
    tracker, calendar, noise = PolicyTracker(policy, state), Calendar(policy), _Silent()
    tracker.begin_day(date, [])
    drawn: list[TrackerRelease] = []
    for key, in_slot in groupby(hats, lambda hat: hat.slot):
        slot = calendar.slot_named(*key.split("/"))
        assert slot is not None
        drawn += tracker.close_slot(slot, [hat_users(hat.cell, retained.chunks(hat)) for hat in in_slot], noise)
    if settles:
        drawn += tracker.settle(noise)
    return list(_asked(drawn)), tracker.end_day()


def _asked(drawn: Sequence[TrackerRelease]) -> Iterator[Asked]:
    """Each bus loses 2 Z_b / D by a query: its term is between -Z_b and Z_b, and D is the scale of the noise."""
    spent: dict[int, int] = {}
    for release in drawn:
        if release.query is None:
            continue
        design = release.query.design
        for bus, bound in zip(design.members.buses.tolist(), design.bounds.tolist(), strict=True):
            spent[bus] = spent.get(bus, 0) - (-2 * bound * NANO // design.scale)
        fields = {name: value for name, value in release.query.fields().items() if name != "sum"}
        epsilon = json.loads(msgspec.json.encode(exact_json(release.query.largest)), parse_float=Fraction)
        query = json.loads(msgspec.json.encode(fields), parse_float=Fraction)
        yield Asked(release.release_id, release.cell, epsilon, query, max(spent.values()))
