"""What counts alone make a tracker ask: its queries of each date of a dumped log, folded again in this process.

A design does not depend on released numbers, a prediction only on those of before: they are taken from the topic, and
no noise is drawn. Both depend on the state with which the tracker begins the date: where Redis has lost it, that is the
state after any earlier date, or none.
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

from hatcast.agents.batch.fold import FoldJob, fold_dump
from hatcast.agents.batch.retention import RetainChunks, RetainedHat
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.dump import DUMP, Dump
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.worker.folds import fold_maker
from hatcast.stream.fold.calendar import Calendar, closes_at
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import Policy, TrackerKeys
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms
from hatcast.stream.records.fields import PULSE, SETTLEMENT, date_of, query_id, release_id
from hatcast.stream.release.placed import exact_json
from hatcast.stream.release.tracker import hat_users
from hatcast.stream.release.tracker_records import MadeQuery
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.query import STEPS, ResidualQuery
from hatcast.stream.tracker.state import TrackerState
from hatcast.stream.tracker.tracker import Tracker
from tests.faults.facts import NANO, Asked, Course

_PSEUDONYMS: Final = Pseudonyms(bytes(KEY_BYTES))  # any: no design depends on who a user is
_NOW_MS: Final = 1_800_000_000_000  # after every record


@dataclass(frozen=True)
class Courses:
    """As `Log` has them."""

    courses: Mapping[str, Sequence[Course]]
    settled: frozenset[str]


def courses_of(dump: Path, published: Mapping[str, Sequence[bytes]], settings: Settings, end_ms: int) -> Courses:
    """The courses of each date that has HATs which are over. Every partition's watermark ends at `end_ms`.

    published   release_id -> values on `hats.means`
    """
    policy, calendar = settings.policy, Calendar(settings.policy)
    retained = _fold(dump, settings)
    sums = _sums(published)
    states: list[TrackerState | None] = [None]
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
        runs = [_Course(policy, date, state, sums.get(date, {})) for state in states]
        for run in runs:
            run.close_slots(of_date, retained)
            if date in settled:
                run.take(run.tracker.settle())
        found[date] = [run.asked for run in runs]
        states = [*(run.tracker.state(policy.policy_id, date) for run in runs), *states]  # first without a loss
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
        fold_dump(lines, FoldJob(policy, users, _NOW_MS, retained, lambda _: None), make)
    return retained


def _sums(published: Mapping[str, Sequence[bytes]]) -> dict[str, dict[int, int]]:
    """Date -> number of a query -> its released sum."""
    found: dict[str, dict[int, int]] = {}
    for name, values in published.items():
        query = json.loads(values[0]).get("query")
        if query is not None:
            found.setdefault(date_of(name), {})[query["number"]] = query["sum"]
    return found


class _Course:
    """A tracker that works through one date.

    sums    number of a query -> its released sum; 0 for one that was never released
    asked   its queries so far
    """

    def __init__(self, policy: Policy, date: str, state: TrackerState | None, sums: Mapping[int, int]) -> None:
        self._keys = policy.keys_of(TrackerKeys)
        self.tracker = Tracker(
            self._keys,
            Prior.of_policy(policy),
            state=state,
            min_users=policy.min_users,
        )
        self.tracker.begin_day()
        self.asked: list[Asked] = []
        self._policy, self._calendar, self._date = policy, Calendar(policy), date
        self._sums = sums
        self._hats: list[tuple[str, str]] = []
        self._spent: dict[int, int] = {}

    def close_slots(self, hats: Sequence[RetainedHat], retained: RetainChunks) -> None:
        """Ask what the close of each slot leads to."""
        for key, in_slot in groupby(hats, lambda hat: hat.slot):
            slot = self._calendar.slot_named(*key.split("/"))
            assert slot is not None
            users = [hat_users(hat.cell, retained.chunks(hat)) for hat in in_slot]
            counted = [hat for hat in users if len(hat.counts) >= self._policy.min_users]
            if counted:
                self._hats += [(slot.name, hat.cell) for hat in counted]
                hour = self._calendar.local(slot.start_ms).hour
                self.take(self.tracker.close_slot(slot.start_ms, hour, counted), slot.name)

    def take(self, queries: Iterator[ResidualQuery], slot: str = "") -> None:
        """Ask and learn each. slot: at whose close; none for the settlement."""
        track = self.tracker.tracks[0]
        for design in queries:
            number = len(self.asked) + 1
            released, predicted = self._sums.get(number, 0), track.expected(design)
            hats = tuple(self._hats[hat] for hat in design.members.hats.tolist())
            made = MadeQuery(number, design, hats, released, predicted, self._keys.daily_limit)
            cell, policy = hats[0][1], self._policy.name
            if slot and len({cell for _, cell in hats}) == 1:
                name = release_id(policy, f"{self._date}/{slot}", cell)
            else:
                name = query_id(policy, self._date, PULSE if slot else SETTLEMENT, number)
            raw = predicted + released / (STEPS * design.total * design.kept)
            self.asked.append(self._asked(name, cell, made, raw))
            track.learn(query=design, released=released)

    def _asked(self, name: str, cell: str, made: MadeQuery, raw: float) -> Asked:
        """Each bus loses 2 Z_b / D by a query: its term is between -Z_b and Z_b, and D is the scale of the noise."""
        design = made.design
        for bus, bound in zip(design.members.buses.tolist(), design.bounds.tolist(), strict=True):
            self._spent[bus] = self._spent.get(bus, 0) - (-2 * bound * NANO // design.scale)
        fields = {field: value for field, value in made.fields().items() if field != "sum"}
        epsilon, query = (
            json.loads(msgspec.json.encode(each), parse_float=Fraction) for each in (exact_json(made.largest), fields)
        )
        return Asked(name, cell, Fraction(epsilon), query, raw, max(self._spent.values()))
