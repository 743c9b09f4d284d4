"""`/metrics` of real processes after a whole run: what is declared, what is stored, and nothing of a vehicle."""

import re
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hatcast.agents.worker.readiness
from hatcast.agents.monitoring.declarations import Process
from tests.exposed import figures, undeclared, unset
from tests.integration.harness import Pipeline, WorkerProcess, open_pipeline
from tests.integration.health import LISTEN, asked, is_ready, scraped
from tests.integration.tables import golden_table, merged
from tests.integration.test_bridge_gtfs_rt import poll
from tests.services import KafkaServer, RedisServer
from tests.services.data import golden, recording
from tests.services.kafka_server import PARTITIONS

VEHICLES = re.compile(rb"HEL-\d\d", re.IGNORECASE)  # of the recording
QUERY = {"name": "fast", "kind": "over_speed_limit", "days": 1, "epsilon": 1.0, "speed_limit": 30.0}
TOTAL = 1e5
SPENT = {"min_users": 3, "unit": "user", "total_limit": TOTAL, "daily_limit": 1e4}


@dataclass
class Run:
    """A recording, all of it folded, released and answered by one worker, and its page afterwards."""

    pipeline: Pipeline
    worker: WorkerProcess
    page: str
    status: dict[str, Any]


def look_often() -> None:
    hatcast.agents.worker.readiness.ROUND_S = 0.1  # type: ignore[misc]  # a test need not wait for seconds


@pytest.fixture(scope="module")
def run(kafka: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    table = golden_table(golden("edge"), privacy=SPENT)
    changes = merged(merged(table, LISTEN), {"policy": {"query": [QUERY]}})
    with open_pipeline(kafka, redis_server, tmp_path_factory.mktemp("metrics"), "metrics", changes) as pipeline:
        worker = pipeline.worker(wrap=look_often)
        pipeline.wait_for_partitions(worker)
        pipeline.replay(recording("golden/edge.jsonl"), "jsonl")
        pipeline.wait(pipeline.is_settled, "releases of everything", worker)
        pipeline.wait(lambda: is_ready(worker), "a worker that is ready", worker)
        pipeline.wait(
            lambda: (
                figures(scraped(worker), "hatcast_open_slots") == {(): 0.0}
                and figures(scraped(worker), "hatcast_oldest_final_seconds") == {(): 0.0}
            ),
            "a look at what is stored",
            worker,
        )
        yield Run(pipeline, worker, scraped(worker), pipeline.status())


@pytest.mark.timeout(240)
def test_a_worker_shows_all_that_is_declared_and_nothing_else(run: Run) -> None:
    assert unset(run.page, Process.WORKER) == set()
    assert undeclared(run.page, Process.WORKER) == set()
    assert "process_resident_memory_bytes" in run.page


@pytest.mark.timeout(240)
def test_the_outcomes_are_those_of_the_stored_state(run: Run) -> None:
    counted = {labels[0]: records for labels, records in figures(run.page, "hatcast_readings_total").items() if records}
    assert counted == run.status["outcomes"]
    assert {"late", "undecodable", "duplicate", "over_cap"} <= counted.keys()
    assert figures(run.page, "hatcast_unstored_records") == {(): 0}
    assert set(figures(run.page, "hatcast_behind_records").values()) == {0}


@pytest.mark.timeout(240)
def test_the_clock_of_each_partition_is_the_stored_one(run: Run) -> None:
    stored = {(str(each["partition"]),): each["clock"] / 1000 for each in run.status["partitions"]}
    assert figures(run.page, "hatcast_clock_timestamp_seconds") == stored


@pytest.mark.timeout(240)
def test_releases_and_answers_are_counted_by_what_became_of_them(run: Run) -> None:
    kinds = {"hat": run.pipeline.published(), "query": run.pipeline.answers()}
    expected = Counter(
        (kind, msgspec.json.decode(value)["status"])
        for kind, records in kinds.items()
        for values in records.values()
        for value in values
    )
    counted = {labels: records for labels, records in figures(run.page, "hatcast_releases_total").items() if records}
    assert counted == expected
    assert figures(run.page, "hatcast_closing_delay_seconds_count") == {(): len(kinds["hat"])}
    assert figures(run.page, "hatcast_freshness_seconds_count") == {(): 0}  # of a recording
    assert figures(run.page, "hatcast_unpublished_releases") == {(): 0}
    assert figures(run.page, "hatcast_publish_duration_seconds_count")[()] > 0
    assert figures(run.page, "hatcast_commit_duration_seconds_count")[()] > 0


@pytest.mark.timeout(240)
def test_the_worker_is_ready_in_all_parts_and_has_had_no_trouble(run: Run) -> None:
    assert set(figures(run.page, "hatcast_ready").values()) == {1}
    assert figures(run.page, "hatcast_partitions") == dict.fromkeys(
        [("assigned",), ("loaded",), ("topic",)], PARTITIONS
    )
    assert figures(run.page, "hatcast_checkpoints_total")["refused",] == 0
    assert figures(run.page, "hatcast_ledger_recoveries_total") == {("finished",): 1, ("unfinished",): 0}
    assert figures(run.page, "hatcast_producers_fenced_total") == {(): 0}


@pytest.mark.timeout(240)
def test_the_spent_budget_is_that_of_the_day_that_is_folded(run: Run) -> None:
    newest = max(run.pipeline.budget_records().values(), key=lambda record: record["date"])
    assert figures(run.page, "hatcast_budget_spent_ratio") == {
        (): pytest.approx(newest["epsilon_user_day"] / newest["limit"])
    }
    assert figures(run.page, "hatcast_budget_total_spent_ratio") == {(): pytest.approx(newest["total"] / TOTAL)}


@pytest.mark.timeout(240)
def test_i5_no_vehicle_is_in_anything_that_an_operator_reads(run: Run) -> None:
    doctor = run.pipeline.hatcast("doctor")
    status = run.pipeline.hatcast("status", "--json")
    told = {
        "/metrics": run.page.encode(),
        "/readyz": msgspec.json.encode(asked(run.worker, "/readyz")),
        "/livez": msgspec.json.encode(asked(run.worker, "/livez")),
        "doctor": (doctor.out + doctor.err).encode(),
        "status": (status.out + status.err).encode(),
        "budget": run.pipeline.hatcast("budget", "show").out.encode(),
        **{path.name: path.read_bytes() for path in run.pipeline.folder.glob("*.log")},
        **{path.name: path.read_bytes() for path in run.pipeline.folder.glob("*.err")},
    }
    assert VEHICLES.search(recording("golden/edge.jsonl").read_bytes())
    assert all(told[name] for name in ("/metrics", "doctor", "status", "budget"))
    assert [name for name, said in told.items() if VEHICLES.search(said)] == []


@pytest.mark.timeout(240)
def test_no_figure_is_of_a_cell(run: Run) -> None:
    cells = {release_id.rpartition("/")[2] for release_id in run.pipeline.published()}
    assert cells
    assert not any(cell in run.page for cell in cells)


@pytest.mark.timeout(240)
def test_the_display_shows_all_that_is_declared_and_nothing_of_it_in_public(run: Run) -> None:
    display = run.pipeline.start("display", "--port", 0, "--metrics-listen", "127.0.0.1:0")
    run.pipeline.wait(lambda: is_ready(display), "a display that has read the topics", display)
    page = scraped(display)
    assert unset(page, Process.DISPLAY) == set()
    assert undeclared(page, Process.DISPLAY) == set()
    assert figures(page, "hatcast_display_kafka_up") == {(): 1}
    (public,) = re.findall(r'"url": "http://([\d.:]+)/"', display.logged())
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://{public}/metrics", timeout=30.0)
    with urllib.request.urlopen(f"http://{public}/api/v1/latest", timeout=30.0) as answer:
        latest: bytes = answer.read()
    assert display.terminate() == 0
    for said in (latest, page.encode(), display.log.read_bytes()):
        assert said
        assert not VEHICLES.search(said)


@pytest.mark.timeout(240)
def test_a_bridge_shows_all_that_is_declared_and_no_vehicle(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    polls = iter(range(1_000_000))

    class Agency(BaseHTTPRequestHandler):
        """Each poll has a newer reading of the same buses."""

        def do_GET(self) -> None:
            body = poll(**{f"HEL-{bus:02}": 1_790_000_000 + next(polls) for bus in range(5)})
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with (
        open_pipeline(kafka, redis_server, tmp_path, "bridge") as pipeline,
        ThreadingHTTPServer(("127.0.0.1", 0), Agency) as agency,
    ):
        threading.Thread(target=agency.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{agency.server_port}/positions.pb"
        bridge = pipeline.start("feed", "gtfs-rt", url, "--every", "1s", "--metrics-listen", "127.0.0.1:0")
        pipeline.wait(lambda: is_ready(bridge), "a bridge that is ready", bridge)
        pipeline.wait(
            lambda: figures(scraped(bridge), "hatcast_bridge_readings_total")[()] >= 5, "readings in Kafka", bridge
        )
        page = scraped(bridge)
        assert bridge.terminate() in (0, 130)
        agency.shutdown()
    assert unset(page, Process.BRIDGE) == set()
    assert undeclared(page, Process.BRIDGE) == set()
    assert figures(page, "hatcast_bridge_source_up") == {(): 1}
    assert not VEHICLES.search(page.encode() + bridge.log.read_bytes())
