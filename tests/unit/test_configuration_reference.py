"""The reference of hatcast.toml is that of the types."""

import msgspec
import pytest

from hatcast.agents.config.settings import _File
from tools import configuration_reference
from tools.configuration_reference import PAGE, TABLES, render_page, table_keys

EVERY_KEY = {f"{table}.{key}" for table in TABLES for key in table_keys(table)}


def test_the_page_is_what_the_types_say() -> None:
    assert render_page(PAGE.read_text()) == PAGE.read_text(), "run python -m tools.configuration_reference"


def test_every_table_of_the_file_is_in_the_reference() -> None:
    assert {name.partition(".")[0] for name in TABLES} == set(_File.__struct_fields__)


class _Redis(msgspec.Struct):
    url: str = ""
    """another sentence"""
    username: str = ""


def test_a_key_without_a_sentence_below_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, "redis", _Redis)
    with pytest.raises(ValueError, match=r"^redis\.username: write a sentence below its field"):
        render_page(PAGE.read_text())


def test_keys_of_hybrid_estimators_and_the_topic_of_reports_are_in_it() -> None:
    wanted = {f"policy.estimator.{key}" for key in ("noise", "sigma", "sigma_local", "mean_gap")}
    assert wanted | {"policy.privacy.local_epsilon", "policy.privacy.max_coalition", "topics.reports"} <= EVERY_KEY


def test_a_page_without_one_of_the_tables_is_refused() -> None:
    page = PAGE.read_text().replace("<!-- keys of redis,", "<!-- no keys of redis,")
    with pytest.raises(ValueError, match="redis"):
        render_page(page)


def test_a_sentence_that_changed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration_reference, "meanings_of", lambda table: dict.fromkeys(dir(table), "another"))
    assert render_page(PAGE.read_text()) != PAGE.read_text()
