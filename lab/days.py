"""Whole days of recordings as the final HATs of their slots, for simulations and plans. Raw data, not private."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np

from hatcast.agents.batch.fold import FoldJob, fold_recording
from hatcast.agents.batch.retention import RetainChunks, RetainedHat
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import load_settings, parse_settings
from hatcast.agents.demo.defaults import demo_policy
from hatcast.agents.recordings.files import open_recording
from hatcast.stream.errors import HatcastError, RecordingError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import columns
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Format
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.readings.recording import Recording
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms
from hatcast.stream.tracker.tracker import HatUsers

TRACKER_CAP: Final = 500
"""most HATs of a bus's day that a tracker folds: a bound of memory, which privacy does not need"""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSlot:
    """Final HATs of one slot, by cell."""

    key: str  # `date/slot`
    start_ms: int  # ms UTC
    hour: int  # of the local clock in which the slot starts
    hats: tuple[HatUsers, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedDay:
    """Slots of one local date that have HATs, in order."""

    date: str
    slots: tuple[RecordedSlot, ...]


_OF_VALUES: Final = {Outcome.ZERO, Outcome.BAD_VALUE, Outcome.UNDECODABLE}  # they may follow from speeds: not told


@dataclass(frozen=True, slots=True)
class Recordings:
    """Files that are consecutive days of one stream, opened as one recording."""

    recording: Recording
    name: str

    def fold(self, policy: Policy, progress: Callable[[int], None]) -> tuple[RetainChunks, Mapping[str, int]]:
        """Fold the files as `hatcast batch` does, and return their contributions, and numbers of records by outcome.

        Calls `progress` with the number of records folded since the last call.
        """
        retained = RetainChunks()
        # A constant key, for reproducible results: pseudonyms decide the order of users, and so their grouping.
        users = FoldUsers(Pseudonyms(bytes(KEY_BYTES)))
        return retained, fold_recording(self.recording, FoldJob(policy, users, now_ms(), retained, progress)).outcomes

    def days(self, policy: Policy, progress: Callable[[int], None]) -> list[RecordedDay]:
        """Return the days of the files. HATs without a reading are left out.

        Raises RecordingError without any HAT.
        """
        retained, outcomes = self.fold(policy, progress)
        calendar = Calendar(policy)
        slots = [
            _slot_of(key, [_users_of(hat, retained) for hat in hats], calendar)
            for key, hats in groupby(retained.hats(), lambda hat: hat.slot)
        ]
        days = groupby((slot for slot in slots if slot.hats), lambda slot: slot.key.partition("/")[0])
        found = [RecordedDay(date, tuple(slots)) for date, slots in days]
        if not found:
            problem = "has no HAT with a reading"
            told = {name: records for name, records in outcomes.items() if name not in _OF_VALUES}
            if told:
                (outcome, records) = max(told.items(), key=lambda each: each[1])
                problem += f": {records:,} of its {sum(outcomes.values()):,} records are {outcome}"
            fix = "check policy.hours (`--hours` of `hatcast init`), and the file with `hatcast check`"
            raise RecordingError(self.name, problem, fix)
        return found


def policy_of_recordings(config: Path | None, feed_format: str) -> Policy:
    """Return the policy of a configuration; without one, the papers' setting for all hours. Raises HatcastError."""
    if config is not None:
        return single_valued(load_settings(config).policy, config)
    table = demo_policy(feed_format) | {
        "privacy": {"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 105.0},
        "estimator": {"name": "array_averaging"},
    }
    return parse_settings({"policy": table}, Path(), {}).policy


def single_valued(policy: Policy, config: Path) -> Policy:
    """Return the policy. Raises HatcastError if it releases several values: these commands read one."""
    if len(policy.released_values) > 1:
        raise HatcastError(f"{config}: has policy.values, but this command reads one value only; remove them in a copy")
    return policy


@contextmanager
def open_days(paths: Sequence[Path], feed: Format) -> Iterator[Recordings]:
    """Open files of one format. They can be folded several times, also pipes. Raises RecordingError."""
    with open_recording(paths, feed) as recording:
        yield Recordings(recording, ", ".join(path.name for path in paths))


def with_users(days: Sequence[RecordedDay], least: int) -> list[RecordedDay]:
    """Return the days with only the HATs that have at least this many users."""
    filtered = []
    for day in days:
        slots = [replace(slot, hats=tuple(hat for hat in slot.hats if len(hat.counts) >= least)) for slot in day.slots]
        filtered.append(RecordedDay(day.date, tuple(slot for slot in slots if slot.hats)))
    return [day for day in filtered if day.slots]


def _users_of(hat: RetainedHat, retained: RetainChunks) -> HatUsers | None:
    chunks = [columns(chunk) for chunk in retained.chunks(hat).readings]
    if not chunks:
        return None
    pseudonyms, counts, sums = (np.concatenate(each) for each in zip(*chunks, strict=True))
    return HatUsers(hat.cell, pseudonyms, counts, sums)


def _slot_of(key: str, hats: Sequence[HatUsers | None], calendar: Calendar) -> RecordedSlot:
    date, _, name = key.partition("/")
    slot = calendar.slot_named(date, name)
    if slot is None:
        raise ValueError(f"the fold made a slot {key} that its own calendar does not have")
    return RecordedSlot(key, slot.start_ms, int(name[:2]), tuple(hat for hat in hats if hat is not None))
