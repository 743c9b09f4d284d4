"""The Python API against a real broker: `hatcast.read` returns what a topic has, each record once."""

import tomllib
from pathlib import Path

import pytest

import hatcast
from hatcast.stream.errors import HatcastError
from tests.integration.harness import Pipeline
from tests.integration.test_export import fill, golden, moved, send

pytestmark = pytest.mark.pipeline({"kafka": {"partitions": 3}}, topics=True)


def test_the_records_of_each_topic_are_read_once(pipeline: Pipeline) -> None:
    fill(pipeline, range(1, 4))
    send(pipeline, "means", [{"release_id": "x", "policy_id": "y"}], "release_id")  # of no version
    released = golden("release", "replace_released")
    for source in (pipeline.settings, pipeline.config):
        found = hatcast.read(source)
        assert sorted(each.date for each in found) == ["2022-01-01", "2022-01-02", "2022-01-03"]
        assert {each.release_id for each in found} == {
            moved(released, "release_id", day)["release_id"] for day in range(1, 4)
        }
        assert found.to_polars()["mean"].to_list() == [released["mean"]] * 3
    assert [each.stage for each in hatcast.read(pipeline.settings, "estimates")] == ["settled"] * 3
    assert len(hatcast.read(pipeline.config, "answers")) == 3
    assert len(hatcast.read(pipeline.config, "budget")) == 0
    assert len(hatcast.read(pipeline.config, policy="another")) == 0
    assert len(hatcast.read(pipeline.config, policy=released["release_id"].partition("/")[0])) == 3


def test_a_broker_that_does_not_answer_and_a_topic_that_does_not_exist_are_one_line(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    text = pipeline.config.read_text()
    (tmp_path / "other.toml").write_text(text.replace(f"{pipeline.name}.means", f"{pipeline.name}.meens"))
    with pytest.raises(HatcastError, match=r"\.meens") as absent:
        hatcast.read(tmp_path / "other.toml")
    servers = tomllib.loads(text)["kafka"]["bootstrap_servers"]
    (tmp_path / "nowhere.toml").write_text(text.replace(servers, "127.0.0.1:1"))
    with pytest.raises(HatcastError, match=r"127\.0\.0\.1:1") as unreachable:
        hatcast.read(tmp_path / "nowhere.toml")
    for refused in (absent, unreachable):
        assert "\n" not in str(refused.value)
        assert "--" not in str(refused.value)
