"""`hatcast budget show --ledger`: the days of a ledger file, without Redis."""

import json
import os
from functools import partial
from pathlib import Path

import pytest

from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.config.settings import load_settings
from tests import invoked
from tests.batching import CONFIG, batch, config, recording_of
from tests.folding import HOUR, NOON

__all__ = ["config"]  # the fixture


@pytest.fixture
def ledger(tmp_path: Path, config: Path) -> Path:
    log = recording_of(tmp_path / "log.jsonl", NOON, NOON + HOUR)
    path = tmp_path / "ledger"
    assert batch(log, "--format", "jsonl", "--config", config, "--ledger", path).exit_code == 0
    return path


budget = partial(invoked.run, "budget")


def test_the_days_are_those_of_the_file(ledger: Path, config: Path) -> None:
    before = ledger.read_bytes()
    (day,) = json.loads(budget("show", "--config", config, "--ledger", ledger, "--json").stdout)
    assert (day["date"], day["policy"], day["releases"]) == ("2022-01-02", "test", 2)
    assert (day["epsilon_user_day"], day["limit"]) == (2.0, 105.0)
    assert "2022-01-02" in budget("show", "--config", config, "--ledger", ledger).stdout
    explained = json.loads(budget("explain", "--config", config, "--ledger", ledger, "--json").stdout)
    assert explained["ledger"] == {"days": 1, "spent": 2.0, "most": 2.0}
    assert ledger.read_bytes() == before


def refusal(*arguments: object, name: str = "show") -> str:
    return invoked.refusal("budget", name, *arguments)


def test_a_file_that_cannot_be_shown_is_one_line(ledger: Path, config: Path, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert refusal("--config", config, "--ledger", absent).endswith("no such file; `hatcast batch --ledger` creates it")
    assert not absent.exists()
    assert "is not a ledger of hatcast" in refusal("--config", config, "--ledger", config)
    assert "is not a ledger of hatcast" in refusal("--config", config, "--ledger", config, name="explain")
    other = tmp_path / "other.toml"
    other.write_text(CONFIG.replace('"test"', '"late"'))
    assert refusal("--config", other, "--ledger", ledger).endswith(
        "has no policy 'late', but test: name its file with --config"
    )
    other.write_text(CONFIG.replace("epsilon = 1.0", "epsilon = 2.0"))
    assert "has policy 'test' with another policy.privacy.epsilon: name" in refusal(
        "--config", other, "--ledger", ledger
    )


def test_a_file_that_batch_has_locked_is_one_line(ledger: Path, config: Path) -> None:
    with open_ledger(ledger, load_settings(config).policy):
        child = os.fork()
        if child == 0:  # SQLite's locks are between processes
            try:
                said = refusal("--config", config, "--ledger", ledger)
                os._exit(0 if "is in use by another `hatcast batch`" in said else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
