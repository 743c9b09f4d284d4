"""A feed of nothing but garbage, end to end: bridges, Kafka, a worker, dead letters."""

import asyncio
import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Final

from aiomqtt import Client

from hatcast.agents.clock import now_ms
from hatcast.agents.kafka.dead_letters import LETTERS_PER_SECOND
from hatcast.agents.monitoring.declarations import Process
from tests.exposed import figures, undeclared, unset
from tests.integration.forked import Forked
from tests.integration.harness import Pipeline, WorkerProcess, open_pipeline
from tests.services import KafkaServer, Record, RedisServer
from tests.services.lifecycle import Spawned
from tests.services.mosquitto import Mosquitto

MANY: Final = 3_000
PUBLISHED: Final = 500
BUSES: Final = 20
SECRET: Final = b"GJ05BX1234 was here"


class Bridge(WorkerProcess):
    """`hatcast feed mqtt` on a topic of its own."""

    def __init__(self, pipeline: Pipeline, mosquitto: Mosquitto, topic: str) -> None:
        log = pipeline.folder / f"{topic}.log"
        super().__init__(["hatcast", "feed"], log)
        self.topic = f"{pipeline.name}/{topic}"
        options = ["--host", "127.0.0.1", "--port", str(mosquitto.port), "--topic", self.topic, "--format", "jsonl"]
        self._options = [*options, "--metrics-listen", "127.0.0.1:0", "--config", str(pipeline.config)]

    def _spawn(self) -> Spawned:
        return Forked(["feed", "mqtt", *self._options], self.log, self.log)


def page(process: WorkerProcess) -> str:
    """Its `/metrics`."""
    address = re.search(r'"address": "([^"]+)", "event": "serving metrics and health checks"', process.logged())
    assert address is not None
    with urllib.request.urlopen(f"http://{address[1]}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


async def publish(mosquitto: Mosquitto, garbage: str, good: str) -> None:
    """Garbage of a bad feed, and beside it what good buses send."""
    async with Client("127.0.0.1", mosquitto.port, max_inflight_messages=200) as client:
        client.pending_calls_threshold = PUBLISHED
        for first in range(0, PUBLISHED, 100):
            await asyncio.gather(
                *(client.publish(garbage, b"{%d %b" % (first + number, SECRET), 1) for number in range(100))
            )
        for number in range(BUSES):
            bus = {"vehicle": f"bus-{number}", "time": now_ms(), "lat": 21.2, "lon": 72.8, "speed": 20.5}
            await client.publish(good, json.dumps(bus).encode(), 1)


def test_a_feed_of_nothing_but_garbage_stops_no_other_fills_nothing_and_is_counted(
    kafka: KafkaServer, redis_server: RedisServer, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "garbage", {"worker": {"listen": "127.0.0.1:0"}}) as pipeline:
        worker = pipeline.worker()
        bad, good = bridges = [Bridge(pipeline, mosquitto, topic) for topic in ("bad", "good")]
        for bridge in bridges:
            pipeline.processes.append(bridge)
            bridge.start()
        for bridge in bridges:
            pipeline.wait(lambda bridge=bridge: "source reached" in bridge.logged(), "bridge", bridge)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        pipeline.wait_for_partitions(worker)
        began_s = time.monotonic()
        asyncio.run(publish(mosquitto, bad.topic, good.topic))
        # And a producer of somebody else, which sends garbage past all bridges.
        kafka.produce(pipeline.name, (Record(b"{%d %b" % (number, SECRET), b"bus-1") for number in range(MANY)))
        pipeline.wait(
            lambda: pipeline.outcomes().get("accepted", 0) == BUSES and count(bad) == PUBLISHED,
            "end of the garbage",
            *bridges,
        )
        pipeline.wait(lambda: pipeline.outcomes().get("undecodable") == MANY, "end of the other garbage", worker)
        seconds = time.monotonic() - began_s

        # Nothing of the bad bridge is on the topic, and it says so where an alert looks.
        assert pipeline.outcomes() == {"accepted": BUSES, "undecodable": MANY}
        shown = page(bad)
        assert figures(shown, "hatcast_bridge_readings_total") == {(): 0.0}
        assert undeclared(page(good), Process.BRIDGE) == unset(page(good), Process.BRIDGE) == set()
        outcomes = figures(page(worker), "hatcast_readings_total")
        assert outcomes["undecodable",] >= MANY

        # Dead letters say where, never what, and are cut to a rate; the rest is counted.
        letters = kafka.read(pipeline.settings.topics.dead_letters)
        told = figures(page(worker), "hatcast_dead_letters_total")
        assert 0 < len(letters) <= LETTERS_PER_SECOND * (seconds + 1)
        assert told["sent",] + told["dropped",] >= MANY
        for letter in letters:
            assert letter.key is None
            assert json.loads(letter.value or b"").keys() == {"topic", "partition", "offset", "reason"}
        # No log grows with it, and none holds it.
        for process in (worker, *bridges):
            log = process.log.read_bytes()
            assert SECRET not in log
            assert b"GJ05" not in log
            assert len(log) < 20_000
        assert [bridge.terminate() for bridge in bridges] == [0, 0]


def count(bridge: Bridge) -> float:
    return figures(page(bridge), "hatcast_bridge_undecodable_total")[()]
