"""hatcast.toml: what is no policy and no way to Kafka."""

from pathlib import Path

import pytest

from hatcast.agents.config.settings import parse_settings
from hatcast.agents.config.tables import Address, TopicsTable
from hatcast.stream.errors import SettingError
from tests.integration.tables import DEFAULTS, merged


def listening(text: str) -> Address | None:
    given = merged(DEFAULTS, {"policy": {"name": "p"}, "worker": {"listen": text}})
    return parse_settings(given, Path("/nowhere"), {}).listen


@pytest.mark.parametrize("text", ["127.0.0.1:9464", "0.0.0.0:0", "[::1]:9464", "worker-1.internal:80"])
def test_an_address_to_listen_on_is_a_host_and_a_port(text: str) -> None:
    assert str(listening(text)) == text


@pytest.mark.parametrize(
    "text", ["", "9464", "127.0.0.1", ":9464", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "a@b:1", "a:1/livez"]
)
def test_what_is_no_address_to_listen_on_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"worker\.listen"):
        listening(text)


@pytest.mark.parametrize(
    ("name", "display", "title"),
    [
        ("surat-speeds", {}, "Surat speeds: bus speeds, hour by hour"),
        ("surat-speeds", {"title": "Surat"}, "Surat"),
        ("---", {}, "---: bus speeds, hour by hour"),
    ],
)
def test_the_maps_title_begins_with_the_policys_name_unless_it_is_given(
    name: str, display: dict[str, str], title: str
) -> None:
    given = merged(DEFAULTS, {"policy": {"name": name}, "display": display})
    assert parse_settings(given, Path("/nowhere"), {}).display.title == title


def topics(**given: str) -> TopicsTable:
    return parse_settings(merged(DEFAULTS, {"policy": {"name": "p"}, "topics": given}), Path("/nowhere"), {}).topics


def test_a_prefix_stands_before_every_topic_name_that_is_not_written() -> None:
    made = topics(prefix="surat.", queries="answers")
    assert made.names == (
        "surat.telemetry",
        "surat.hats.means",
        "answers",
        "surat.hats.budget",
        "surat.hats.estimates",
        "surat.hats.running",
        "surat.hats.dead-letters",
        "surat.reports",
        "surat.hats.clusters",
        "surat.cluster-answers",
        "surat.telemetry.hatcast",
    )
    assert topics().means == "hats.means"


@pytest.mark.parametrize(
    "given", [{"means": "telemetry.hatcast"}, {"prefix": "a/"}, {"telemetry": "t" * 242}, {"budget": ""}]
)
def test_a_topic_name_that_is_taken_or_that_kafka_would_not_take_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(SettingError, match=r"^topics: "):
        topics(**given)
