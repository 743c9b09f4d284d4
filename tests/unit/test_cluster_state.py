"""The state file of a clustering: a damaged one is refused, and nothing is drawn or sent from it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hatcast.agents.cluster.live.state import Chosen, ClusteringPlan, open_state
from hatcast.stream.errors import HatcastError

CHOSEN = Chosen(
    policy_id="b2:0",
    date="2022-01-02",
    slots=("09:00",),
    clusters=2,
    iterations=3,
    epsilon=4.0,
    seed=1,
    blend="lm_only",
)


def plan() -> ClusteringPlan:
    return ClusteringPlan(clustering="c", chosen=CHOSEN, answers_from=())


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE rounds RENAME COLUMN numbers TO numbert",
        "DELETE FROM plan",
        "UPDATE plan SET body = CAST('{' AS BLOB)",
        "UPDATE plan SET charged = 'x'",
        "UPDATE rounds SET numbers = CAST('[]' AS BLOB)",
    ],
)
def test_a_damaged_state_file_of_a_clustering_is_refused(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "state"
    with open_state(path, CHOSEN, plan) as state:
        state.begin_round(1, b"{}", 7)
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()
    with (
        pytest.raises(HatcastError, match="is a damaged state file: start a new clustering with another --state"),
        open_state(path, CHOSEN, plan) as state,
    ):
        state.numbers(1)
