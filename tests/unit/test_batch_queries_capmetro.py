"""Queries over four days of Austin's buses (November 2016, over a holiday) by `hatcast batch`, and in plain Python."""

import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import h3.api.basic_str as h3
import pytest

from tests.services.data import DATA
from tests.unit.test_batch_queries import Runs, answers, near, query

FILES = [DATA / "capmetro" / f"2016-11-{day}.csv.gz" for day in (24, 25, 26, 27)]
DATES = [path.name.partition(".")[0] for path in FILES]
HOURS = (16, 18)  # of the local clock, which the archive writes
LIMIT = 40.0
CONFIG = """
[policy]
name = "austin"
upper_bound = 65.0
timezone = "America/Chicago"
hours = [16, 18]
h3_resolution = 6
[policy.privacy]
epsilon = 1000.0
max_hats_per_day = 100
daily_limit = 1e9
acknowledge_weak_privacy = true
[policy.estimator]
name = "baseline"
"""
SCALE = 0.00001  # the grid has steps of 0.001: a noise that is not 0 has probability 1e-43 an answer
ASKED = {
    "mean-speed": {"kind": "mean_speed", "days": 4, "from": DATES[0], "scale": SCALE, "min_n": 20},
    "over-40": {"kind": "over_speed_limit", "days": 4, "from": DATES[0], "scale": SCALE, "speed_limit": LIMIT},
    "over-40-daily": {"kind": "over_speed_limit", "days": 1, "scale": SCALE, "speed_limit": LIMIT},
    "half-missing": {"kind": "mean_speed", "days": 4, "from": "2016-11-22", "epsilon": 1.0, "min_n": 1},
}
QUERIES = "".join(query(name=name, **keys) for name, keys in ASKED.items())

Speeds = dict[tuple[str, str], dict[tuple[str, str], list[Fraction]]]
"""(slot, cell) -> (date, vehicle) -> m/s as km/h, cut to 65"""


def lines(path: Path) -> Iterator[list[str]]:
    """The header and the lines of the hours, as they stand."""
    with gzip.open(path, "rt") as file:
        for number, line in enumerate(csv.reader(file)):
            if number == 0 or HOURS[0] <= int(line[1][11:13]) < HOURS[1]:
                yield line


def directly(files: list[Path]) -> Speeds:
    """What the fold's rules leave: a bus counts once a second and cell, at 0 and above 150 km/h not at all."""
    found: Speeds = defaultdict(lambda: defaultdict(list))
    seen = set()
    for path in files:
        for vehicle, time, speed, _, _, lat, lon, *_ in list(lines(path))[1:]:
            instant, cell = datetime.fromisoformat(time), h3.latlng_to_cell(float(lat), float(lon), 6)
            assert instant.utcoffset() is not None
            milli = round(Fraction(float(speed)) * Fraction(36, 10) * 1000)
            if 0 < milli <= 150_000 and (vehicle, instant, cell) not in seen:
                seen.add((vehicle, instant, cell))
                place = (f"{instant:%H}:00", cell)
                found[place][f"{instant:%Y-%m-%d}", vehicle].append(min(Fraction(milli, 1000), Fraction(65)))
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The four days, but only the hours that the policy counts."""
    folder = tmp_path_factory.mktemp("capmetro")
    paths = [folder / path.stem for path in FILES]
    for path, source in zip(paths, FILES, strict=True):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(lines(source))
    return paths


def released(answered: list[dict[str, Any]], name: str) -> dict[tuple[str, str, str], float]:
    return {
        (each["date"], each["slot"], each["cell"]): each["mean"]
        for each in answered
        if each["query"] == name and each["status"] == "released"
    }


def test_four_days_of_buses_are_answered_as_plain_python_answers_them(tmp_path: Path, files: list[Path]) -> None:
    speeds, told = directly(FILES), answers(Runs(tmp_path)(CONFIG + QUERIES, *files, form="capmetro"))
    crowded = {place: days for place, days in speeds.items() if len(days) >= 20}
    assert 20 < len(crowded) < len(speeds)
    found = released(told, "mean-speed")
    assert found.keys() == {(DATES[-1], *place) for place in crowded}
    for place, days in crowded.items():
        means = [sum(each, Fraction(0)) / len(each) for each in days.values()]
        assert near(found[DATES[-1], *place], sum(means, Fraction(0)) / len(means))

    found = released(told, "over-40")
    assert found.keys() == {(DATES[-1], *place) for place in speeds}
    fast = {place: [key for key, each in days.items() if max(each) > LIMIT] for place, days in speeds.items()}
    assert all(near(found[DATES[-1], *place], Fraction(len(keys), 4)) for place, keys in fast.items())

    found = released(told, "over-40-daily")
    assert found.keys() == {(date, *place) for place, days in speeds.items() for date, _ in days}
    for (date, slot, cell), mean in found.items():
        assert near(mean, Fraction(sum(of == date for of, _ in fast[slot, cell])))

    missing = [each for each in told if each["query"] == "half-missing"]
    assert {(each["date"], each["status"], tuple(each["missing"])) for each in missing} == {
        (DATES[1], "suppressed", ("2016-11-22", "2016-11-23"))  # from the 26th on: not over yet
    }
