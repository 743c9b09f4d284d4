"""What `hatcast feed mqtt` and `gtfs-rt` refuse before they ask anybody."""

import pytest
from click.testing import CliRunner

from hatcast.agents.cli import hatcast


def refusal_of(*arguments: str) -> str:
    result = CliRunner().invoke(hatcast, ["feed", *arguments])
    assert result.exit_code == 2
    return result.stderr


@pytest.mark.parametrize("topic", ["", "#/bus", "bus/#/1", "bus+/1", "bus#"])
def test_a_topic_that_no_broker_takes_is_wrong_usage(topic: str) -> None:
    said = refusal_of("mqtt", "--host", "broker.example", "--format", "hfp", "--topic", "bus/#", "--topic", topic)
    assert f"{topic!r} is not a topic filter" in said


@pytest.mark.parametrize(
    "url", ["ftp://feed.example/a.pb", "https://", "http:///a.pb", "http://feed.example:x/", "a.pb"]
)
@pytest.mark.parametrize("command", ["gtfs-rt", "siri"])
def test_an_address_that_nobody_can_be_asked_at_is_wrong_usage(command: str, url: str) -> None:
    assert "write the address as http://host/" in refusal_of(command, url)
