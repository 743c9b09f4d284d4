"""Recordings to a survey, or to a private selection, by way of rows on disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from secrets import token_bytes
from typing import Final

from hatcast.agents.recordings.files import open_records
from hatcast.agents.research.survey.count import ResolutionCount, capped_counts
from hatcast.agents.research.survey.spill import Held, Spill, open_spill
from hatcast.stream.errors import RecordingError
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Feed
from hatcast.stream.readings.pseudonyms import KEY_BYTES, Pseudonyms
from hatcast.stream.survey.figures import Resolution
from hatcast.stream.survey.rows import Rows, slots_of
from hatcast.stream.survey.selection import busy_cells, noisy_counts

SURVEYED: Final = (5, 6, 7, 8, 9)
_HELD: Final = Held()
_TOLD: Final = 10_000  # records between two words about progress

Days = tuple[date, date]
Progress = Callable[[str, int], None]
"""(what is done, how much more of it)"""


@dataclass(frozen=True, slots=True)
class Job:
    """What is read, and how.

    policy   its time zone, hours, slots and rules; its h3_resolution is that of the cells that are selected, and which
             cells it lists does not matter
    days     local dates, both included; None: those that have readings
    users    N: what the mean of daily users has to be above, in every slot
    now_ms   the time of the start
    """

    paths: Sequence[Path]
    feed: Feed
    policy: Policy
    days: Days | None
    users: Fraction
    now_ms: int
    progress: Progress
    held: Held = _HELD


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found. Not private.

    days        the dates that means are over: D of them
    outcomes    records by what became of them; `accepted`: before `min_interval`
    busy        the cells of the policy's resolution that have more than N users a day in every slot
    """

    days: Days
    number_of_days: int
    outcomes: dict[str, int]
    resolutions: list[Resolution]
    busy: list[int]


@dataclass(frozen=True, slots=True)
class Selection:
    """What was selected with noise: private for the epsilon that it was made for.

    candidates   of how many
    scale        of the noise on a mean of daily users
    """

    candidates: int
    kept: list[int]
    scale: float


def survey(job: Job) -> Survey:
    """All figures of all resolutions. Raises RecordingError, also if no reading counts; HatcastError if the disk is full."""
    resolutions = sorted({*SURVEYED, job.policy.h3_resolution})
    policy, slots = replace(job.policy, cells=None), slots_of(job.policy)
    rows = Rows(policy, Pseudonyms(token_bytes(KEY_BYTES)), resolutions, job.days, job.now_ms)
    with open_spill(resolutions, job.held.part_rows) as spill:
        _read(job, rows, spill)
        dates = spill.dates()
        if not dates:
            names = ", ".join(map(str, job.paths))
            raise RecordingError(names, "has no reading that counts", "check --format, --timezone, --hours and --days")
        counted = [ResolutionCount(resolution) for resolution in resolutions]
        for local_date in dates:
            for part in spill.parts(local_date):
                for each in counted:
                    each.add_part(part)
            for each in counted:
                each.end_date()
            job.progress("counting days", 1)
    number = len(dates) if job.days is None else _number(job.days)
    busy = {each.resolution: busy_cells(*each.counts(slots), job.users, number) for each in counted}
    return Survey(
        days=(date.fromisoformat(dates[0]), date.fromisoformat(dates[-1])) if job.days is None else job.days,
        number_of_days=number,
        outcomes={outcome: records for outcome, records in rows.outcomes.items() if records},
        resolutions=[each.figures(len(busy[each.resolution])) for each in counted],
        busy=busy[policy.h3_resolution],
    )


def select_privately(job: Job, days: Days, candidates: Sequence[int], epsilon: float, noise: Noise) -> Selection:
    """The candidates whose noisy mean of daily users is above N in every slot; see `hatcast.stream.survey.selection`.

    job      the max_hats_per_day of its policy is K
    days     public: the D days, each of which is charged `epsilon`
    Raises RecordingError, UnsafeNoise; HatcastError where the disk is full.
    """
    policy, slots = replace(job.policy, cells=frozenset(candidates)), slots_of(job.policy)
    resolutions = (policy.h3_resolution,)
    rows = Rows(policy, Pseudonyms(token_bytes(KEY_BYTES)), resolutions, days, job.now_ms)
    with open_spill(resolutions, job.held.part_rows) as spill:
        _read(job, rows, spill)
        counts = capped_counts(spill, spill.dates(), candidates, slots, policy.max_hats_per_day)
    noisy = noisy_counts(counts, policy.max_hats_per_day, _number(days), epsilon, noise)
    kept = busy_cells(candidates, noisy.counts, job.users, _number(days))
    return Selection(len(candidates), kept, noisy.scale)


def _read(job: Job, rows: Rows, spill: Spill) -> None:
    """All records through the rules, to disk."""
    with open_records(job.paths, job.feed) as read:
        for number, recorded in enumerate(read(), start=1):
            rows.add(recorded)
            if rows.held >= job.held.chunk_rows:
                spill.write(rows.take())
            if number % _TOLD == 0:
                job.progress("reading records", _TOLD)
    spill.write(rows.take())


def _number(days: Days) -> int:
    return (days[1] - days[0]).days + 1
