"""What docs/choosing.md says of a tracker's intervals, on four days of Capital Metro.

The noise is seeded (five_days.py), so there is no false alarm; bounds are so wide that other draws pass too. An
interval of the mean that is a fifth narrower would hold 91 % of the means, and is seen.
"""

import re
from statistics import mean, median
from typing import Final

import pytest

import hatcast
from hatcast.agents.batch import run
from hatcast.agents.batch.fold import FoldResult
from hatcast.agents.batch.ledger_file import LedgerFile
from hatcast.agents.batch.retention import RetainChunks
from hatcast.agents.batch.run import BatchRun
from hatcast.stream.fold.packing import columns
from hatcast.stream.mechanisms import system
from tests.services.data import ROOT
from tests.statistics.five_days import FILES, seeded

FOUR: Final = FILES[:4]
PAGE: Final = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")


def said(pattern: str) -> float:
    """A number on the page."""
    (found,) = re.findall(pattern, PAGE)
    return float(found)


@pytest.mark.filterwarnings("ignore::hatcast.HatcastWarning")
def test_the_page_says_what_intervals_hold_and_how_wide_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "SystemNoise", lambda: seeded(1))
    policy = hatcast.Policy(
        "austin", upper_bound=65, timezone="America/Chicago", hours=(0, 24), privacy={"daily_limit": 5}
    )
    truth = dict[str, float]()
    fold = run.fold_input

    def folded(given: BatchRun, retained: RetainChunks, ledger: LedgerFile) -> FoldResult:
        """To read and fold the days once more for their means would take a fifth of the time."""
        found = fold(given, retained, ledger)
        for hat in retained.hats():
            users = [columns(chunk) for chunk in retained.chunks(hat).readings]
            readings, total = (sum(int(each.sum()) for each in column) for column in list(zip(*users, strict=True))[1:])
            truth[f"{hat.slot}/{hat.cell}"] = total / readings / 1000
        return found

    monkeypatch.setattr(run, "fold_input", folded)
    estimates = [each for each in hatcast.batch(FOUR, policy, format="capmetro").estimates if each.mean is not None]
    of_mean, of_road, widths = [], [], []
    for each in estimates:
        assert each.mean is not None
        low, high = each.mean.interval95
        own = truth[f"{each.date}/{each.slot}/{each.cell}"]
        of_mean.append(low <= own <= high)
        of_road.append(each.road.interval95[0] <= own <= each.road.interval95[1])
        widths.append(high - low)
    assert len(widths) > 3_000
    assert 0.94 < mean(of_mean) < 0.99
    assert 100 * mean(of_mean) == pytest.approx(said(r"(\d+) % of the intervals hold it\n"), abs=2)
    assert 100 * mean(of_road) == pytest.approx(said(r"three of four HATs only \(there in (\d+) %\)"), abs=6)
    assert median(widths) == pytest.approx(said(r"wider than (\d+) km/h from end to end at the day's end"), abs=3)
