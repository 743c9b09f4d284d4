"""The recorded input that tests stand on."""

import json
from statistics import median

import pytest

from hatcast.lab.evaluate.simulation import Readings
from tests.services import data
from tests.services.absent import absence_skips


def test_what_may_be_published_is_in_the_tree() -> None:
    days = ["2016-11-24", "2016-11-25", "2016-11-26", "2016-11-27", "2017-03-21"]
    for path in ["golden/edge.jsonl", *(f"capmetro/{day}.csv.gz" for day in days)]:
        assert data.recording(path).is_relative_to(data.DATA)


@pytest.mark.parametrize("name", ["edge", "capmetro_2017-03-21", "itms_30min", "gtfs_rt"])
def test_every_golden_has_outcomes_and_hats(name: str) -> None:
    assert {"outcomes", "hats"} <= data.golden(name).keys()


def test_the_itms_like_counts_meet_what_is_published_of_that_hat() -> None:
    found = json.loads((data.DATA / "itms_like_counts.json").read_text())
    counts = sorted(found["counts"], reverse=True)
    assert (len(counts), counts[0], counts[-1], sum(counts)) == (217, 417, 1, 17_166)
    assert median(counts) == 46
    assert (found["U"], found["mean"], found["variance"]) == (65.0, 20.66769, 115.135)
    assert (Readings().upper_bound, Readings().mean, Readings().variance) == (65.0, 20.66769, 115.135)


def test_an_absent_recording_skips_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match=data.RECORDINGS_ABSENT), absence_skips():
        data.recording("no/such/recording.json")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=data.RECORDINGS_ABSENT), absence_skips():
        data.recording("no/such/recording.json")
