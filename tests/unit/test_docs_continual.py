"""docs/continual.md: every command prints what the page shows, and its table of kinds is that of the code."""

import json
import re
import shutil
from pathlib import Path

import pytest

from hatcast.lab.plan.continual import Criterion
from hatcast.lab.plan.continual.kinds import Errors, PlannedSums, errors_of, mechanisms_of
from hatcast.lab.plan.continual.report import number
from hatcast.lab.plan.continual.users import Participation, equal_users, run_of
from hatcast.stream.policy.method import NoiseKind
from tests.services.data import DATA
from tests.unit.test_docs_tutorial import blocks, normal, run

PAGE = (Path(__file__).parents[2] / "docs" / "continual.md").read_text()
SLOTS = (24, 168, 720, 8760)
WEEK = 168
PARTICIPATIONS = ("once", "once a week", "every hour")


def stream(slots: int, enters: str) -> PlannedSums:
    max_slots, separation = {
        "once": (1, 1),
        "once a week": ((slots - 1) // WEEK + 1, min(slots, WEEK)),
        "every hour": (slots, 1),
    }[enters]
    return PlannedSums(slots, 24, Participation(max_slots, separation, 1), 1.0, 1e-6, 65.0)


def row(slots: int, enters: str) -> str:
    """A row of the table of kinds: the best one of each criterion, with pure epsilon and with delta."""
    declared, users = stream(slots, enters), equal_users(slots, 10)
    found: list[tuple[str, NoiseKind, Errors]] = []
    for kind, mechanism in mechanisms_of(declared):
        setting = mechanism.setting
        name = kind.value if setting.branching is None else f"{kind.value} {setting.branching}"
        found.append((name, setting.noise, errors_of(run_of(mechanism, users), users, declared.bound)))
    cells = []
    for noises in ({NoiseKind.LAPLACE}, {*NoiseKind}):
        for criterion in (Criterion.MEAN_RMS, Criterion.SUM_RMS):
            name, _, errors = min((each for each in found if each[1] in noises), key=lambda each: each[2].by(criterion))
            cells.append(f"{name}: {number(errors.by(criterion))}")
    return f"| {slots:,} | {enters} | {declared.participation.max_slots:,} | {' | '.join(cells)} |"


@pytest.mark.parametrize("enters", PARTICIPATIONS)
@pytest.mark.parametrize("slots", SLOTS)
def test_the_table_of_kinds_is_that_of_the_mechanisms(slots: int, enters: str) -> None:
    assert row(slots, enters) in PAGE.splitlines()


def test_the_table_has_no_other_rows() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| [\d,]+ \|", line)]
    assert len(rows) == len(SLOTS) * len(PARTICIPATIONS)


def test_every_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    shutil.copy(DATA / "capmetro" / "2016-11-24.csv.gz", tmp_path)
    printed, script, compared = "", "", 0
    free = PAGE.index("## Free: "), PAGE.index("## Which kind")  # its commands need a Kafka
    for file, kind, body in blocks(PAGE[: free[0]] + PAGE[free[1] :]):
        if kind == "sh":
            printed, script = run(body, tmp_path), body
        elif kind == "text":
            assert normal(printed, noisy=True) == normal(body, noisy=True), script
            compared += 1
        elif kind == "json":
            record = printed[printed.index("{") :]  # behind a hint on standard error
            assert outline(json.loads(record)) == outline(json.loads(body))
            compared += 1
        else:
            (tmp_path / file).write_text(body)
    assert compared == 5


def outline(record: object) -> object:
    """A record without the numbers that noise and the clock decide."""
    if isinstance(record, dict):
        noisy = {"mean", "raw", "interval95", "value", "released_at"}
        return {key: None if key in noisy else outline(value) for key, value in record.items()}
    return record
