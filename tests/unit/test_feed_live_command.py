"""What `hatcast feed mqtt` and `gtfs-rt` refuse before they ask anybody."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from hatcast.agents.cli import feed_live, hatcast
from hatcast.agents.config.template import TemplateAnswers, render_template
from hatcast.stream.readings.formats import FormatChoice


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


@pytest.mark.parametrize(
    ("command", "form"),
    [
        (("gtfs-rt",), "gtfs-rt-in-service"),
        (("gtfs-rt", "--vehicle", "label"), "gtfs-rt-label-in-service"),
        (("siri",), "siri-in-service"),
    ],
)
def test_vehicles_out_of_service_are_left_out_by_the_formats_name(
    command: tuple[str, ...], form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chosen: list[FormatChoice] = []
    monkeypatch.setattr(feed_live, "_run", lambda _, __, choice, *___, **____: chosen.append(choice))
    path = tmp_path / "hatcast.toml"
    path.write_text(render_template(TemplateAnswers(timezone="UTC")))
    arguments = [*command, "https://agency.example/feed", "--config", str(path), "--in-service"]
    result = CliRunner().invoke(hatcast, ["feed", *arguments])
    assert result.exit_code == 0, result.output
    assert [choice.name for choice in chosen] == [form]
