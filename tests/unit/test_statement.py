"""`hatcast statement`: every number follows from the policy, of whatever kind, and every answer has what backs it."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from jsonschema import Draft202012Validator

from hatcast.agents.cli.budget_explained import figures
from hatcast.agents.cli.statement import statement
from hatcast.agents.config.settings import Settings, load_settings, settings_of_policy
from tests.replayed import policy_of
from tests.services.data import ROOT

TODAY: Final = "2022-01-02"
SCHEMA: Final = yaml.safe_load((ROOT / "tests/data/registry/deployments-schema.yaml").read_text())
FILES: Final = sorted([ROOT / "hatcast.toml", *(ROOT / "examples").rglob("*.toml")])
UNIT: Final = {"epsilon": 1.0, "max_hats_per_day": 4, "daily_limit": 4.0, "unit": "user", "total_limit": 40.0}
every_policy = pytest.mark.parametrize("given", [*FILES, "of a user"], ids=lambda given: getattr(given, "stem", given))


def settings(given: Path | str) -> Settings:
    return load_settings(given, {}) if isinstance(given, Path) else settings_of_policy(policy_of(privacy=UNIT), {})


def bound(of: Settings) -> float:
    day: float = figures(of.policy, 31, "")["day"]["bound"]
    return day


@every_policy
@pytest.mark.parametrize("what", ["page", "registry", "hazards"])
def test_a_statement_leaves_only_what_hatcast_cannot_know(given: Path | str, what: str) -> None:
    text = statement(what, settings(given), TODAY)
    assert not re.search(r"[{}]|^\[|\bNone\b", text, re.MULTILINE), text
    assert text.count("⟨") == text.count("⟩") > 0


@every_policy
def test_the_page_has_the_bound_of_a_day_and_says_when_it_is_weak(given: Path | str) -> None:
    of = settings(given)
    text = statement("page", of, TODAY)
    assert f"epsilon {bound(of):g}" in text
    assert ("is a weak protection" in text) == (bound(of) > 10)
    assert ("Whether a ⟨bus⟩ was there at all is hidden too" in text) == (of.policy.relation == "add_remove")
    assert ("(delta)" in text) != of.policy.is_pure


@every_policy
def test_the_entry_of_the_registry_is_what_its_schema_asks_of_tier_3(given: Path | str) -> None:
    of = settings(given)
    entry: dict[str, Any] = yaml.safe_load(statement("registry", of, TODAY))
    checker = Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
    assert [error.message for error in checker.iter_errors(entry)] == []
    loss, flavor = entry["deployment"]["privacy_loss"], entry["deployment"]["dp_flavor"]
    assert loss["privacy_parameters"]["epsilon"] == (of.policy.total_limit or bound(of))
    assert ("delta" in loss["privacy_parameters"]) == (flavor["name"] == "Approximate DP") == (not of.policy.is_pure)


def test_an_entry_that_is_not_one_is_seen() -> None:
    entry = yaml.safe_load(statement("registry", settings("of a user"), TODAY))
    entry["deployment"]["dp_flavor"]["name"] = "Strong DP"
    assert not Draft202012Validator(SCHEMA).is_valid(entry)


@every_policy
def test_every_hazard_has_an_answer_and_what_backs_it_is_there(given: Path | str) -> None:
    text = statement("hazards", settings(given), TODAY)
    rows = [line.split("|")[1:-1] for line in text.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) == 20
    for section, hazard, answer, backed_by in rows:
        files = re.findall(r"`([^`]+)`", backed_by)
        assert all(part.strip() for part in (section, hazard, answer))
        assert files, hazard
        assert [name for name in files if not (ROOT / name).is_file()] == []


def test_every_value_of_a_reading_that_is_released_is_named() -> None:
    text = statement("page", settings(ROOT / "examples/audit/values.toml"), TODAY)
    assert "publishes the speed while moving and the delay of ⟨buses⟩" in text
    assert "We do not publish the speed and the delay of any single" in text


def test_a_tracker_has_no_averages_that_cost_and_a_policy_of_the_papers_no_estimates() -> None:
    tracker, papers = (
        statement("page", settings(ROOT / name), TODAY) for name in ("hatcast.toml", "examples/papers.toml")
    )
    assert "sure of it by one average" not in tracker
    assert "The speeds on the map are estimates" in tracker
    assert "sure of it by one average" in papers
    assert "The speeds on the map are estimates" not in papers
