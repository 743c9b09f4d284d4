"""The reference of hatcast.toml is that of the types."""

import pytest

from hatcast.agents.config.meanings import DEFAULTS, DURATIONS, MEANINGS, TABLES, table_keys
from hatcast.agents.config.settings import _File
from tools.configuration_reference import PAGE, render_page

EVERY_KEY = {f"{table}.{key}" for table in TABLES for key in table_keys(table)}


def test_the_page_is_what_the_types_say() -> None:
    assert render_page(PAGE.read_text()) == PAGE.read_text(), "run python -m tools.configuration_reference"


def test_every_table_of_the_file_is_in_the_reference() -> None:
    assert {name.partition(".")[0] for name in TABLES} == set(_File.__struct_fields__)


def test_what_is_said_beside_the_types_is_about_keys_that_there_are() -> None:
    assert DURATIONS | DEFAULTS.keys() <= EVERY_KEY
    assert {f"{table}.{key}" for table, meanings in MEANINGS.items() for key in meanings} == EVERY_KEY


def test_keys_of_hybrid_estimators_and_the_topic_of_reports_are_in_it() -> None:
    wanted = {f"policy.estimator.{key}" for key in ("noise", "sigma", "sigma_local", "mean_gap")}
    assert wanted | {"policy.privacy.local_epsilon", "policy.privacy.max_coalition", "topics.reports"} <= EVERY_KEY


def test_a_page_without_one_of_the_tables_is_refused() -> None:
    page = PAGE.read_text().replace("<!-- keys of redis,", "<!-- no keys of redis,")
    with pytest.raises(ValueError, match="redis"):
        render_page(page)


def test_a_meaning_that_changed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEANINGS["kafka"], "partitions", "another meaning")
    assert render_page(PAGE.read_text()) != PAGE.read_text()
