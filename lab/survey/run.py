"""Compute a survey or a private selection of cells from recordings, by way of rows on disk."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final

import polars as pl

from hatcast.agents.config.settings import load_settings, parse_settings
from hatcast.agents.recordings.files import open_recording, open_records
from hatcast.lab.survey.counts import Counts, ResolutionCounter, busy_cells, capped_counts, noisy_counts
from hatcast.lab.survey.figures import Resolution
from hatcast.lab.survey.rows import MemoryLimits, RowCollector, Spill, open_spill, slots_of
from hatcast.stream.errors import HatcastError, RecordingError, SettingError
from hatcast.stream.fold.open_slots import IdSpans
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.cells_file import read_cells_file
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Format, Recorded
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms

_REPORT_POLICY: Final[Mapping[str, Any]] = {
    "name": "survey",
    "upper_bound": 65.0,
    "privacy": {"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 105.0},
    "estimator": {"name": "baseline"},
}
_NOT_COUNTED: Final = ("query", "resolutions", "fine_cells", "values")
SURVEYED: Final = (5, 6, 7, 8, 9)
_DEFAULT_LIMITS: Final = MemoryLimits()
_PROGRESS_EVERY: Final = 10_000  # records between two calls of `progress`
Days = tuple[date, date]
Progress = Callable[[str, int], None]  # (name of the step, units done since the last call)


def survey_policy(config: Path | None, feed_format: str, overrides: Mapping[str, Any], max_hats: int | None) -> Policy:
    """Return the policy of a configuration file, or else the report's, with overrides.

    overrides   `timezone`, `hours`, `h3_resolution`; the policy's `cells` is ignored, since a survey makes that list
    max_hats    K; None: the policy's
    Raises HatcastError with one line.
    """
    if config is not None:
        policy = load_settings(config, {}, lambda table: _counting_table(table) | {**overrides}).policy
    else:
        from hatcast.agents.demo.defaults import RECORDED_ZONES

        zone = {"timezone": RECORDED_ZONES[feed_format]} if feed_format in RECORDED_ZONES else {}
        if not zone and "timezone" not in overrides:
            raise HatcastError("the time zone of the recording is unknown: name --timezone or --config")
        try:
            policy = parse_settings({"policy": {**_REPORT_POLICY, **zone, **overrides}}, Path(), {}).policy
        except SettingError as error:
            raise HatcastError(str(error)) from None
    return dataclasses.replace(policy, max_hats_per_day=max_hats or policy.max_hats_per_day)


def read_public_candidates(path: Path, resolution: int) -> list[int]:
    """Return the H3 indexes of a candidates file, sorted. Raises RecordingError, SettingError: not public, or empty."""
    where = f"--candidates {path}"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(where, f"cannot be read ({type(error).__name__})", "name a readable file") from None
    candidates = read_cells_file(text, where, resolution)
    if candidates.source != "public":
        raise SettingError(
            where,
            f'has source = "{candidates.source}"',
            'make the list without looking at the data, and write source = "public"',
        )
    if not candidates.cells:
        raise SettingError(where, "lists no cell", "list H3 indexes, one per line")
    return sorted(candidates.cells)


def _counting_table(table: dict[str, Any]) -> dict[str, Any]:
    """Return the [policy] table without queries, several values and lists of cells, since nothing is released.

    The file of `cells` need not exist yet, except under `add_remove`, where the list is public and required. The
    resolution is the coarse one of several.
    """
    privacy, counted = table.get("privacy"), {key: value for key, value in table.items() if key not in _NOT_COUNTED}
    resolutions = table.get("resolutions")
    if isinstance(counted.get("value"), list):  # of several values; one value decides which readings count
        del counted["value"]
    if isinstance(resolutions, list) and resolutions:
        counted["h3_resolution"] = resolutions[0]
    hides_presence = isinstance(privacy, dict) and privacy.get("relation") == "add_remove"
    return counted if hides_presence else counted | {"cells": "all"}


@dataclass(frozen=True, slots=True)
class SurveyJob:
    """Input of a survey or a selection."""

    paths: Sequence[Path]
    feed: Format
    # time zone, hours, slots, rules, and the h3_resolution of selected cells; its list of cells is ignored
    policy: Policy
    days: Days | None  # first and last local date; None: those of the readings
    users: Fraction  # N: what the mean of daily users has to be above, in every slot
    now_ms: int  # the time of the start
    progress: Progress
    limits: MemoryLimits = _DEFAULT_LIMITS


@dataclass(frozen=True, slots=True)
class Survey:
    """Results of a survey. Not private."""

    days: Days  # first and last of the D dates that means are over
    number_of_days: int
    outcomes: dict[str, int]  # records by outcome; `accepted`: before `min_interval`
    resolutions: list[Resolution]
    cells: list[int]  # cells of the policy's resolution with a reading
    busy: list[int]  # those of them with more than N users a day in every slot
    spans: IdSpans  # how many timeslots of their day vehicle ids live in


@dataclass(frozen=True, slots=True)
class CellSelection:
    """Cells selected with noise: private for the epsilon of the selection."""

    candidates: int  # number of candidates
    selected: list[int]
    scale: float  # scale of the noise on a mean of daily users


def survey(job: SurveyJob) -> Survey:
    """Return the figures of all resolutions.

    Raises RecordingError, also if no reading is accepted; HatcastError if the disk is full.
    """
    resolutions = sorted({*SURVEYED, job.policy.h3_resolution})
    policy, slots = replace(job.policy, cells=None), slots_of(job.policy)
    rows = RowCollector(policy, Pseudonyms(token_bytes(KEY_BYTES)), resolutions, job.days, job.now_ms)
    with open_spill(resolutions, job.limits.part_rows) as spill:
        _read(job, rows, spill)
        dates = spill.dates()
        if not dates:
            names = ", ".join(map(str, job.paths))
            raise RecordingError(names, "has no reading that counts", "check --format, --timezone, --hours and --days")
        counters = [ResolutionCounter(resolution) for resolution in resolutions]
        spans = IdSpans()
        for local_date in dates:
            slots_of_day, slots_of_users = set[int](), list[int]()
            for part in spill.parts(local_date):
                slots_of_day.update(part["slot"].unique())
                slots_of_users += part.group_by("user").agg(pl.col("slot").n_unique())["slot"].to_list()
                for each in counters:
                    each.add_part(part)
            spans.add(slots_of_users, len(slots_of_day))
            for each in counters:
                each.end_date()
            job.progress("counting days", 1)
    number = len(dates) if job.days is None else _number(job.days)
    counts = {each.resolution: each.counts(slots) for each in counters}
    busy = {resolution: busy_cells(*found, job.users, number) for resolution, found in counts.items()}
    return Survey(
        days=(date.fromisoformat(dates[0]), date.fromisoformat(dates[-1])) if job.days is None else job.days,
        number_of_days=number,
        outcomes={outcome: records for outcome, records in rows.outcomes.items() if records},
        resolutions=[each.figures(len(busy[each.resolution])) for each in counters],
        cells=counts[policy.h3_resolution][0],
        busy=busy[policy.h3_resolution],
        spans=spans,
    )


def select_privately(
    job: SurveyJob, days: Days, candidates: Sequence[int], epsilon: float, noise: Noise
) -> CellSelection:
    """Select the candidates whose noisy mean of daily users is above N in every slot.

    See `hatcast.lab.survey.counts`.

    job      its policy's max_hats_per_day is K
    days     public: first and last of the D days, each of which is charged `epsilon`
    Raises RecordingError, UnsafeNoise; HatcastError if the disk is full.
    """
    policy, slots = replace(job.policy, cells=frozenset(candidates)), slots_of(job.policy)
    resolutions = (policy.h3_resolution,)
    rows = RowCollector(policy, Pseudonyms(token_bytes(KEY_BYTES)), resolutions, days, job.now_ms)
    with open_spill(resolutions, job.limits.part_rows) as spill:
        _read(job, rows, spill)
        counts = capped_counts(spill, spill.dates(), candidates, slots, policy.max_hats_per_day)
    return select_from(counts, candidates, policy.max_hats_per_day, (job.users, _number(days)), epsilon, noise)


def select_from(
    counts: Counts, candidates: Sequence[int], cap: int, above: tuple[Fraction, int], epsilon: float, noise: Noise
) -> CellSelection:
    """Select candidates by their counts with noise. Raises UnsafeNoise.

    counts   [candidates, slots], of user-days capped at `cap` pairs: private
    above    (N, D): a selected cell's mean over D days is above N
    """
    users, number = above
    noisy = noisy_counts(counts, cap, number, epsilon, noise)
    return CellSelection(len(candidates), busy_cells(candidates, noisy.counts, users, number), noisy.scale)


def _read(job: SurveyJob, rows: RowCollector, spill: Spill) -> None:
    """Apply the rules to all records, and write the rows to disk."""
    with _opened(job) as records:
        for number, recorded in enumerate(records, start=1):
            rows.add(recorded)
            if rows.pending >= job.limits.chunk_rows:
                spill.write(rows.take())
            if number % _PROGRESS_EVERY == 0:
                job.progress("reading records", _PROGRESS_EVERY)
    spill.write(rows.take())


@contextmanager
def _opened(job: SurveyJob) -> Iterator[Iterable[Recorded]]:
    """Open the files in file order; to derive speeds, in the order of arrival."""
    if job.feed.derivation is None:
        with open_records(job.paths, job.feed) as read:
            yield read()
    else:
        with open_recording(job.paths, job.feed) as recording:
            yield (recorded for _, recorded in recording)


def _number(days: Days) -> int:
    return (days[1] - days[0]).days + 1
