"""Derived speeds of CapMetro's buses, with the column of speeds hidden, against the reported ones."""

import csv
import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from hatcast.agents.batch.fold import FoldJob, fold_recording
from hatcast.agents.batch.retention import RetainTotals
from hatcast.agents.recordings.files import open_recording
from hatcast.lab.days import policy_of_recordings
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import DeriveSpeed, FormatChoice
from hatcast.stream.readings.reading import number, to_milli
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms
from tests.services.data import recording

NOW = 1_795_000_000_000
TUESDAY = "capmetro/2017-03-21.csv.gz"
LEAST_USERS = 5


@pytest.fixture(scope="module")
def policy() -> Policy:
    return replace(policy_of_recordings(None, "capmetro"), drop_zero=False)


def hidden(path: Path, folder: Path) -> Path:
    """The recording without its column of speeds."""
    out = folder / path.name.removesuffix(".gz")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines, out.open("w", newline="") as file:
        reader = csv.DictReader(lines)
        names = [name for name in reader.fieldnames or () if name != "speed"]
        writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(reader)
    return out


def hats(path: Path, policy: Policy, derive: DeriveSpeed | None = None) -> dict[str, tuple[float, int]]:
    """HAT -> mean in km/h, users."""
    retained = RetainTotals()
    job = FoldJob(policy, FoldUsers(Pseudonyms(bytes(KEY_BYTES))), NOW, retained, lambda _: None)
    with open_recording([path], policy_format(FormatChoice("capmetro", derive=derive), policy)) as opened:
        fold_recording(opened, job)
    return {key: (total / readings / 1000, users) for key, (users, readings, total, _) in retained.hats.items()}


def speeds(path: Path, policy: Policy, derive: DeriveSpeed | None = None) -> Iterator[tuple[tuple[str, object], float]]:
    """((vehicle, time), km/h) of each reading."""
    with open_recording([path], policy_format(FormatChoice("capmetro", derive=derive), policy)) as opened:
        for _, recorded in opened:
            if (reading := recorded.reading) is not None:
                yield (reading.vehicle, reading.time), to_milli(number(reading.speed), reading.unit) / 1000


def test_the_means_of_a_days_hats_are_within_3_kilometres_per_hour_of_the_reported_ones_in_the_median(
    policy: Policy, tmp_path: Path
) -> None:
    path = recording(TUESDAY)
    reported, derived = hats(path, policy), hats(hidden(path, tmp_path), policy, "missing")
    busy = {key for key, (_, users) in reported.items() if users >= LEAST_USERS}
    assert busy <= derived.keys()
    errors = {key: abs(derived[key][0] - reported[key][0]) for key in reported.keys() & derived.keys()}
    assert median(errors[key] for key in busy) < 2.5
    assert median(errors.values()) < 3.0


def test_almost_every_position_of_a_feed_that_reports_every_two_minutes_gives_a_speed(
    policy: Policy, tmp_path: Path
) -> None:
    path = recording(TUESDAY)
    reported, derived = dict(speeds(path, policy)), dict(speeds(hidden(path, tmp_path), policy, "missing"))
    assert derived.keys() <= reported.keys()
    assert 0.95 < len(derived) / len(reported) < 1.0
    assert median(abs(speed - reported[key]) for key, speed in derived.items()) < 12.0  # of one instant, of 2 minutes
    assert max(derived.values()) <= 150.0


def test_positions_every_four_minutes_are_too_far_apart(policy: Policy, tmp_path: Path) -> None:
    path = recording("capmetro/2016-11-24.csv.gz")
    reported, derived = dict(speeds(path, policy)), dict(speeds(hidden(path, tmp_path), policy, "missing"))
    assert len(derived) / len(reported) < 0.02


def test_the_reported_speeds_are_ignored_if_all_are_derived(policy: Policy, tmp_path: Path) -> None:
    path = recording(TUESDAY)
    assert dict(speeds(path, policy, "always")) == dict(speeds(hidden(path, tmp_path), policy, "missing"))
    assert dict(speeds(path, policy, "missing")) == dict(speeds(path, policy))
