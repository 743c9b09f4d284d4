"""`hatcast.plan_continual`: the comparison that `hatcast plan sums` prints."""

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import hatcast
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import ContinualKeys
from tests.api_data import readings, written
from tests.batching import CONFIG
from tests.unit.test_api_plan import COUNTS
from tests.unit.test_api_policy import policy
from tests.unit.test_plan_continual import planned

pytestmark = pytest.mark.usefixtures("elsewhere")


def check(found: hatcast.PlannedKinds, expected: dict[str, Any]) -> None:
    assert [each.kind for each in found] == [*expected["kinds"]]
    for each, other in zip(found, expected["kinds"].values(), strict=True):
        assert (each.noise, each.memory) == (other["noise"], other["bytes"])
        assert each.mean_rms == pytest.approx(other["mean"]["rms"], rel=1e-5)
        assert (each.sum_max is None) == (other["sum"] is None)
        assert each.factor == pytest.approx(other["factor"], rel=1e-5)
    assert found.best.kind == expected["best"]["kind"]
    assert found.continual == expected["best"]["keys"]


def test_a_plan_without_data_is_that_of_the_command_and_its_keys_make_a_policy() -> None:
    found = hatcast.plan_continual(slots=48, max_slots=3, max_cells=2, by="sum-max")
    check(found, planned("--slots", 48, "--max-slots", 3, "--max-cells", 2, "--by", "sum-max"))
    assert found.to_polars()["kind"].to_list() == [each.kind for each in found]
    assert found.verdict.startswith(f"Best kind: {found.best.kind}")
    made = hatcast.Policy(
        name="two-days",
        upper_bound=65.0,
        timezone="UTC",
        hours=[0, 24],
        privacy={"epsilon": 1.0},
        continual=found.continual,
    )
    keys = made.keys_of(ContinualKeys)
    assert (keys.slots, keys.kind) == (48, found.best.kind)


def test_a_plan_of_readings_and_of_counts_is_that_of_the_command(tmp_path: Path) -> None:
    path, counts = written(tmp_path / "r.jsonl", readings()), tmp_path / "counts.csv"
    config = tmp_path / "hatcast.toml"
    config.write_text(CONFIG)
    check(
        hatcast.plan_continual(pl.DataFrame(readings()), policy(), epsilon=2),
        planned("--data", path, "--format", "jsonl", "--config", config, "--epsilon", 2),
    )
    pd.DataFrame(COUNTS).to_csv(counts, index=False)
    check(hatcast.plan_continual(counts=pd.DataFrame(COUNTS)), planned("--counts", counts))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, "slots: the length of the horizon is missing"),
        ({"slots": 3}, "max_slots: the most slots"),
        ({"slots": 3, "max_slots": 1, "by": "mean-rm"}, "by: 'mean-rm' is not a criterion; did you mean mean-rms?"),
        ({"users_per_slot": 3, "counts": "c.csv"}, "plan_continual takes one of data, counts and users_per_slot"),
        ({"data": "r", "format": "kafka"}, "plan_continual does not read dumps"),
    ],
)
def test_a_wrong_argument_is_one_line(arguments: dict[str, Any], line: str) -> None:
    with pytest.raises(HatcastError) as refused:
        hatcast.plan_continual(**arguments)
    assert str(refused.value).startswith(line)
    assert "--" not in str(refused.value)
