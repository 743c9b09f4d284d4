"""`hatcast display` over a real broker: what is committed is shown byte for byte, and nothing else is."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest
from confluent_kafka import Producer

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.monitoring.declarations import Process
from tests.displaying import CELLS, answered, budget, continual, estimate, release, running
from tests.exposed import undeclared, unset
from tests.integration.harness import Pipeline, WorkerProcess
from tests.integration.health import is_ready, missing, scraped
from tests.services import KafkaServer, Record
from tests.services.data import ROOT

pytestmark = pytest.mark.pipeline({"kafka": {"partitions": 3}})


POISON = [
    Record(b"whatever it holds", b"x"),
    Record(None, b"y"),
    Record(release(2, CELLS[0]).replace(b"{", b'{"deep":' + b"[" * 50_000 + b"]" * 50_000 + b",", 1), b"z"),
]


def send(pipeline: Pipeline, *records: bytes, topic: str | None = None, aborted: bool = False) -> None:
    """In a transaction of its own, as a worker does."""
    name = topic or pipeline.settings.topics.means
    producer = Producer({"bootstrap.servers": pipeline.kafka.bootstrap_servers, "transactional.id": f"{name}/map"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for record in records:
        read = json.loads(record)
        producer.produce(name, record, key=read.get("release_id", read.get("estimate_id", "budget")))
    producer.flush(30)
    (producer.abort_transaction if aborted else producer.commit_transaction)(30)


def url_of(display: WorkerProcess) -> str:
    """Where the map is, once its log says so."""
    for line in display.logged().splitlines():
        if '"map served"' in line:
            return str(json.loads(line)["url"])
    return ""


def shown(display: WorkerProcess, path: str = "latest") -> bytes:
    with urllib.request.urlopen(f"{url_of(display)}api/v1/{path}?policy=city", timeout=30) as answer:
        body: bytes = answer.read()
    return body


def test_what_was_committed_is_shown_byte_for_byte_and_what_was_aborted_is_not(pipeline: Pipeline) -> None:
    ensure_topics(pipeline.settings)
    here, gone, later = (release(hour, CELLS[0], mean) for hour, mean in ((0, "21.870"), (1, "99.999"), (0, "30.000")))
    spent = budget()
    send(pipeline, here)
    send(pipeline, gone, aborted=True)
    pipeline.kafka.produce(pipeline.settings.topics.means, POISON)
    send(pipeline, spent, topic=pipeline.settings.topics.budget)
    display = pipeline.start("display", "--port", 0, "--metrics-listen", "127.0.0.1:0")
    pipeline.wait(lambda: is_ready(display) and bool(url_of(display)), "a map that is ready", display)
    assert b'"releases":[' + here + b"]" in shown(display)
    assert b'"budget":' + spent in shown(display)
    assert b"99.999" not in shown(display)

    second = later.replace(CELLS[0].encode(), CELLS[1].encode())
    send(pipeline, second)
    pipeline.wait(lambda: second in shown(display), "a map that goes on", display)
    page = scraped(display)
    assert undeclared(page, Process.DISPLAY) == set()
    assert unset(page, Process.DISPLAY) == set()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{url_of(display)}metrics", timeout=30)
    assert '"skipped a record that is not of a kind which the map shows"' in display.logged()
    assert "whatever it holds" not in display.logged()
    assert display.terminate() == 0


def test_without_its_topics_the_map_does_not_start_and_says_what_to_do(pipeline: Pipeline) -> None:
    command = [sys.executable, "-m", "hatcast", "display", "--port", "0", "--config", str(pipeline.config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"start a worker" in done.stderr
    assert pipeline.settings.topics.means not in pipeline.kafka.topics(), "and it makes none"


def test_estimates_and_running_means_are_shown_beside_the_releases_each_policys_apart(pipeline: Pipeline) -> None:
    ensure_topics(pipeline.settings)
    topic = pipeline.settings.topics.estimates
    send(pipeline, release(0), release(0, policy="other"))
    send(pipeline, estimate(0), estimate(0, CELLS[1], "predicted"), estimate(0, policy="other", road=9), topic=topic)
    send(pipeline, continual(0, policy="city"))
    send(pipeline, running(0), running(0, policy="other"), topic=pipeline.settings.topics.running)
    pipeline.kafka.produce(pipeline.settings.topics.running, POISON)
    cut = Record(estimate(1).replace(b'"value"', b'"valu"'), b"z")
    pipeline.kafka.produce(topic, [*POISON, cut])
    display = pipeline.start("display", "--port", 0)
    pipeline.wait(lambda: bool(url_of(display)), "a map", display)
    pipeline.wait(lambda: estimate(0) in shown_or_nothing(display), "a map that has read the topics", display)
    assert shown(display, "estimates").endswith(
        b",".join(sorted_by_cell(estimate(0), estimate(0, CELLS[1], "predicted"))) + b"]}"
    )
    assert b"other" not in shown(display, "estimates")
    assert shown(display, "running").endswith(b'"running":[' + running(0) + b"]}")
    assert shown(display, "continual").endswith(b'"continual":[' + continual(0, policy="city") + b"]}")
    assert continual(0, policy="city") not in shown(display)

    settled = estimate(0, stage="settled", road=23)
    send(pipeline, settled, estimate(1), topic=topic)
    pipeline.wait(lambda: estimate(1) in shown(display, "estimates"), "a later hour", display)
    assert settled in shown(display, f"cells/{CELLS[0]}/estimates")
    assert estimate(0) not in shown(display, f"cells/{CELLS[0]}/estimates")
    assert b"estimate_id" not in shown(display)
    assert '"skipped a record that is not of a kind which the map shows"' in display.logged()
    assert "valu" not in display.logged()
    assert display.terminate() == 0


def shown_or_nothing(display: WorkerProcess) -> bytes:
    """The estimates, or nothing while the topics are still being read."""
    try:
        return shown(display, "estimates")
    except urllib.error.HTTPError as error:
        assert error.code == 503
        return b""


def sorted_by_cell(*records: bytes) -> list[bytes]:
    return sorted(records, key=lambda record: str(json.loads(record)["cell"]))


def test_topics_that_are_created_later_are_shown_and_no_release_is_missed(pipeline: Pipeline) -> None:
    """As where no worker of this version has started yet."""
    ensure_topics(pipeline.settings)
    topics = pipeline.settings.topics
    topic, queries = topics.estimates, topics.queries
    pipeline.kafka.delete_topics([topic, queries, topics.running])
    send(pipeline, release(0))
    display = pipeline.start("display", "--port", 0, "--metrics-listen", "127.0.0.1:0")
    pipeline.wait(lambda: is_ready(display) and bool(url_of(display)), "a map that is ready", display)
    assert release(0) in shown(display)
    assert json.loads(shown(display, "estimates"))["estimates"] == []
    assert display.logged().count('"a topic does not exist yet: showing the others until it does"') == 2
    assert not {topic, queries} & pipeline.kafka.topics(), "and it makes none"

    ensure_topics(pipeline.settings)
    send(pipeline, estimate(0), topic=topic)
    pipeline.wait(lambda: estimate(0) in shown(display, "estimates"), "the estimates", display)
    send(pipeline, running(0), topic=topics.running)
    pipeline.wait(lambda: running(0) in shown(display, "running"), "the running mean", display)
    send(pipeline, answered(), topic=queries)
    pipeline.wait(lambda: answered() in shown(display, "queries"), "the answer", display)
    assert display.logged().count('"reading a topic that exists now"') in (1, 2)
    send(pipeline, release(1))
    pipeline.wait(lambda: release(1) in shown(display), "a map that goes on", display)
    assert json.loads(shown(display, "slots"))["slots"][0]["slot"] == "2022-01-02T09:00"
    assert display.terminate() == 0


def status_of(display: WorkerProcess) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url_of(display)}api/v1/status", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@pytest.mark.parametrize("fault", ["stop", "pause"])
def test_while_no_broker_answers_the_map_is_not_ready_and_says_since_when(
    fault: str, breakable_kafka: KafkaServer, pipeline: Pipeline
) -> None:
    ensure_topics(pipeline.settings)
    send(pipeline, release(0))
    display = pipeline.start("display", "--port", 0, "--metrics-listen", "127.0.0.1:0")
    pipeline.wait(lambda: is_ready(display) and bool(url_of(display)), "a map that is ready", display)
    quiet = status_of(display)
    pipeline.wait(lambda: status_of(display)["answered_at"] > quiet["answered_at"], "answers without records", display)
    assert (quiet["live"], quiet["newest_record_at"]) == (True, status_of(display)["newest_record_at"])

    getattr(breakable_kafka, fault)()
    pipeline.wait(lambda: not is_ready(display), "a map that notices", display)
    found = status_of(display)
    parts = missing(display)
    assert parts == {"kafka": f"no Kafka broker answers since {found['answered_at']}"}
    assert (found["live"], found["kafka"]) == (False, parts["kafka"])
    assert quiet["answered_at"] <= found["answered_at"] < found["now"]
    assert release(0) in shown(display), "what was published is still shown"

    breakable_kafka.heal()
    pipeline.wait(lambda: is_ready(display), "a map that is ready again", display)
    send(pipeline, release(1))
    pipeline.wait(lambda: release(1) in shown(display), "a map that goes on", display)
    assert status_of(display)["newest_record_at"] >= found["now"]
    assert display.terminate() == 0
