"""The users of Kafka that the Helm chart makes, and a worker's of Redis: with their rights alone all works."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hatcast.agents.kafka.topics import topic_range
from hatcast.stream.errors import HatcastError
from tests.integration.agency import agency
from tests.integration.chart_city import City, open_city
from tests.integration.health import is_ready
from tests.services import RedisServer
from tests.services.lifecycle import wait_until


@pytest.fixture(scope="module")
def city(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[City]:
    with open_city(redis_server, tmp_path_factory.mktemp("rights")) as opened:
        yield opened


def recording(folder: Path) -> Path:
    """Three vehicles in one hexagon for two hours."""
    path = folder / "readings.jsonl"
    lines = [
        {"vehicle": f"v{vehicle}", "time": at, "arrival": at, "lat": 21.2, "lon": 72.8, "speed": 30 + vehicle}
        for minute in range(0, 120, 10)
        for vehicle in range(3)
        for at in [f"2026-01-05T{8 + minute // 60:02d}:{minute % 60:02d}:00+00:00"]
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_with_the_rights_of_the_chart_and_no_others_hours_are_published_recovered_and_shown(city: City) -> None:
    code, said = city.run("worker", "doctor", "--json")
    assert code == 0, said
    states = {check["name"]: check["state"] for check in json.loads(said)["checks"]}
    assert states["clock"] == "warning", "a worker's user has no TIME"
    assert states["user key"] == "ok", "what follows the clock is checked all the same"
    # A recording asks Redis, so it is sent with the worker's login: the feeds of the chart have none of Redis.
    recorded = str(recording(city.folder))
    code, said = city.run("worker", "feed", "replay", recorded, "--format", "jsonl", "--speedup", "0")
    assert code == 0, said
    worker = city.start("worker", "worker")
    try:
        wait_until(lambda: city.published() >= 2, worker, 60, "releases")
        worker.terminate(60)
        assert city.lag() == 0, "KEDA sees what waits by the group's offsets"
        city.redis_server.delete(f"{{{city.name}*")
        worker = city.start("worker", "worker")
        wait_until(lambda: "ledger recovered" in worker.logged(), worker, 60, "a recovery")
        wait_until(lambda: is_ready(worker), worker, 60, "a ready worker")
    finally:
        worker.close()
    display = city.start("display", "display", "--port", "0", "--metrics-listen", "127.0.0.1:0")
    try:
        wait_until(lambda: is_ready(display), display, 60, "a map")
        assert "does not exist yet" not in display.logged(), "a right to a topic is missing"
    finally:
        display.close()


def test_a_feed_has_the_rights_that_it_needs_and_nobody_reads_or_writes_what_is_not_his(city: City) -> None:
    telemetry, means = (getattr(city.settings("worker").topics, role) for role in ("telemetry", "means"))
    with agency() as address:
        bridge = ("feed", "gtfs-rt", address, "--every", "1s", "--for", "3", "--derive-speed", "--json")
        code, said = city.run("feeds", *bridge)
        assert code == 0, said
        assert topic_range(city.settings("worker"), telemetry) != [(0, 0), (0, 0)]
        code, said = city.run("display", *bridge)
        assert code == 1, said
    with pytest.raises(HatcastError, match=telemetry):
        topic_range(city.settings("display"), telemetry)
    with pytest.raises(HatcastError, match=means):
        topic_range(city.settings("feeds"), means)
