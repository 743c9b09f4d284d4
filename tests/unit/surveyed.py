"""`hatcast survey` over recordings of Austin, for tests."""

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result

from tests import invoked
from tests.services.data import DATA

DAYS = [DATA / "capmetro" / f"2016-11-{day}.csv.gz" for day in (24, 25, 26, 27)]
TUESDAY = DATA / "capmetro" / "2017-03-21.csv.gz"
POLICY = """
[policy]
name = "austin"
upper_bound = 65.0
timezone = "America/Chicago"
cells = "{cells}"
[policy.privacy]
relation = "{relation}"
epsilon = 0.1
max_hats_per_day = 5
daily_limit = 105.0
[policy.estimator]
name = "{estimator}"
"""


run = partial(invoked.run, "survey")
Austin = Callable[..., Result]


@pytest.fixture(scope="module")
def morning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours of a Tuesday."""
    header, *lines = gzip.decompress(TUESDAY.read_bytes()).splitlines()
    path = tmp_path_factory.mktemp("austin") / "morning.csv"
    path.write_bytes(b"\n".join([header, *(line for line in lines if b"T09:" in line or b"T10:" in line)]))
    return path


@pytest.fixture(scope="module")
def austin(morning: Path) -> Austin:
    """The command over these two hours, in busy cells with more than 5 vehicles."""
    return lambda *arguments: run(morning, "--format", "capmetro", "--hours", "9,11", "--users", "5", *arguments)


def config_of(path: Path, cells: str, relation: str = "replace", estimator: str = "baseline") -> Path:
    path.write_text(POLICY.format(cells=cells, relation=relation, estimator=estimator))
    return path


@pytest.fixture
def candidates(tmp_path: Path, austin: Austin) -> Path:
    """The busy cells of Austin, given out as a public list."""
    austin("--cells", tmp_path / "busy.txt")
    path = tmp_path / "candidates.txt"
    path.write_text((tmp_path / "busy.txt").read_text().replace('"survey"', '"public"'))
    return path
