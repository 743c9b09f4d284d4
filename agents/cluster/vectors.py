"""Fold recordings and return a vector for each user."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hatcast.agents.batch.fold import Job, fold_dump, fold_recording
from hatcast.agents.batch.retention import RetainChunks
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.recordings.dump_file import DUMP, Dump
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.worker.folds import fold_maker
from hatcast.stream.errors import HatcastError
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.packing import columns
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.kmeans.hat_vectors import Contributions, hat_vectors, slots_of_day
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Format
from hatcast.stream.readings.pseudonyms import KEY_BYTES, Pseudonyms


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Users' vectors. Everything is private except the shape.

    slots        [d] coordinates
    pseudonyms   [n] ascending
    steps        int64 [n, d] mean speeds in grid steps, in [0, upper bound]
    key          user key of the pseudonyms
    """

    slots: Sequence[str]
    pseudonyms: NDArray[np.uint64]
    steps: Integers
    key: bytes


def select_slots(policy: Policy, wanted: Sequence[str] | None) -> list[str]:
    """Return the coordinates in the order of the day. None: all slots of the policy's hours. Raises HatcastError."""
    slots = slots_of_day(policy)
    if wanted is None:
        return slots
    unknown = [slot for slot in wanted if slot not in slots]
    if unknown or not wanted:
        raise HatcastError(f"--slots: {', '.join(unknown) or 'none'}: the policy's are {', '.join(slots)}")
    return [slot for slot in slots if slot in wanted]


def read_vectors(
    files: Sequence[Path],
    feed: Format,
    settings: Settings,
    slots: Sequence[str],
    progress: Callable[[int], None],
    date: str | None = None,
) -> Vectors:
    """Return the vectors of all users of recordings, or of a dump of telemetry (`feed` DUMP).

    The user key is that of the settings, or a new one.

    date   the local date whose users are returned; None: all
    """
    pseudonyms = Pseudonyms(settings.user_key or secrets.token_bytes(KEY_BYTES))
    retained, users = RetainChunks(), FoldUsers(pseudonyms)
    job = Job(settings.policy, users, now_ms(), retained, progress)
    with open_recording(files, feed) as recording:
        if feed is DUMP:
            dump = Dump(recording, ", ".join(map(str, files)))
            calendar = Calendar(settings.policy)
            fold_dump(dump, job, fold_maker(settings.policy, calendar, users, settings, dump.head.partitions))
        else:
            fold_recording(recording, job)
    found, steps = hat_vectors(_contributions(retained, date), slots, settings.policy)
    return Vectors(slots, found, steps, pseudonyms.key)


def _contributions(retained: RetainChunks, date: str | None) -> Iterator[Contributions]:
    for hat in retained.hats():
        if date is not None and hat.slot.partition("/")[0] != date:
            continue
        for chunk in retained.chunks(hat).readings:
            yield hat.slot.partition("/")[2], *columns(chunk)
