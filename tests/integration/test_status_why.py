"""`hatcast status --why` on a real pipeline: an hour that a silent partition holds open, and what one bus changes."""

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.clock import now_ms
from hatcast.agents.kafka.topics import ensure_topics
from tests.exposed import figures
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.health import LISTEN, scraped
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, ticks
from tests.integration.tables import merged
from tests.services import KafkaServer, Record, RedisServer

FOUR_MS = NOON_MS + 4 * HOUR_MS
BUSES = [f"bus-{number}" for number in range(12)]
pytestmark = pytest.mark.pipeline(topics=True)


def send(pipeline: Pipeline, records: list[Record]) -> None:
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, records)


def noon(speed_of_one: float = 30.0, at_ms: int = NOON_MS) -> list[Record]:
    return [Sample(bus, at_ms + 1_000, 0, speed_of_one if bus == BUSES[0] else 30.0).record() for bus in BUSES]


def why(pipeline: Pipeline, hour: str = "2022-01-02T12:00") -> dict[str, Any]:
    done = pipeline.run("status", "--why", hour, "--json")
    found: dict[str, Any] = done.json["why"]
    return found


def test_a_silent_partition_is_named_until_it_has_moved_on(pipeline: Pipeline) -> None:
    worker = pipeline.worker()
    silent = ticks(NOON_MS + 2 * HOUR_MS)[3]
    send(pipeline, [*noon(), *(tick for tick in ticks(FOUR_MS) if tick.partition != 3)])
    pipeline.wait(pipeline.is_caught_up, "a fold of everything", worker)
    found = why(pipeline)
    assert (found["state"], found["stages"]) == ("waiting", ["feed"])
    assert found["waits_for"] == ["partition 3: nothing since 12:00:01"]
    assert found["pending"] == 1
    send(pipeline, [silent])
    pipeline.wait(pipeline.is_settled, "release", worker)
    found = why(pipeline)
    assert (found["state"], found["waits_for"], found["published"], found["pending"]) == ("released", [], 1, 0)
    assert found["last_release"]["slot"] == "2022-01-02T12:00"
    assert found["budget"]["left"] == found["budget"]["limit"] - 1.0
    text = pipeline.hatcast("status", "--why", "next").out
    assert text.startswith("2022-01-02T13:00 is open; it waits for:\n  partition 3: nothing since 14:00:00\n")


def test_what_it_shows_does_not_depend_on_how_fast_one_bus_went(
    pipeline: Pipeline, kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Under `replace`, where counts and times are public: only the numbers of rejected readings may change."""

    def shown(of: Pipeline, speed: float) -> str:
        worker = of.worker()
        send(of, [*noon(speed), *(tick for tick in ticks(FOUR_MS) if tick.partition != 3)])
        of.wait(of.is_caught_up, "a fold of everything", worker)
        found = of.hatcast("status", "--why", "12:00", "--json").json
        del found["registry"]  # ids of topics
        del found["why"]["now"]
        return re.sub(r"sha256:\w+", "", json.dumps(found).replace(of.name, "NAME"))

    with open_pipeline(kafka, redis_server, tmp_path / "other", "why") as other:
        ensure_topics(other.settings)
        assert shown(pipeline, 2.0) == shown(other, 64.0)


def test_the_page_is_drawn_from_what_is_stored_and_a_wrong_hour_is_one_line(pipeline: Pipeline) -> None:
    worker = pipeline.worker()
    send(pipeline, [*noon(), *(tick for tick in ticks(FOUR_MS) if tick.partition != 3)])
    pipeline.wait(pipeline.is_caught_up, "a fold of everything", worker)
    serving = pipeline.start("status", "--listen", "127.0.0.1:0", "--why", "2022-01-02T12:00")
    url = re.compile(r'"url": "(http://[\d.:]+/)"')
    pipeline.wait(lambda: url.search(serving.logged()) is not None, "page", serving)
    found = url.search(serving.logged())
    assert found is not None
    with urllib.request.urlopen(found[1]) as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert "partition 3: nothing since 12:00:01" in text
    assert "<li class=stalled><h2>Feeds</h2>" in text
    with urllib.request.urlopen(f"{found[1]}status.json?hour=13:00") as answer:
        assert json.load(answer)["why"]["slot"] == "2022-01-02T13:00"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{found[1]}?hour=never")
    assert refused.value.code == 503
    assert refused.value.read().startswith(b"--why never: no slot starts then")
    assert serving.terminate() == 0


def test_freshness_is_measured_from_the_end_of_a_live_hour(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    live = merged({"topics": {"telemetry_retention": "72h"}, "policy": {"lateness": "1m"}}, LISTEN)
    started_ms = now_ms() // HOUR_MS * HOUR_MS - 2 * HOUR_MS
    with open_pipeline(kafka, redis_server, tmp_path, "fresh", live) as pipeline:
        ensure_topics(pipeline.settings)
        worker = pipeline.worker()
        send(pipeline, [*noon(at_ms=started_ms), *ticks(started_ms + HOUR_MS + 120_000)])
        pipeline.wait(lambda: bool(pipeline.published()), "release", worker)
        pipeline.wait(
            lambda: figures(scraped(worker), "hatcast_freshness_seconds_count") == {(): 1}, "observation", worker
        )
        assert 3_600 <= figures(scraped(worker), "hatcast_freshness_seconds_sum")[()] <= 7_300
