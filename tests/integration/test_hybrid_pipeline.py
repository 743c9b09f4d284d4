"""Devices that trust the operator and devices that do not, end to end: 300 buses and 200 devices over one hour.

The operator's noise is acknowledged to be hardly any, and the bound is so large that no device's noise can be small by
chance: so what has to be published follows from the buses' true readings and from the reports on the topic, and a true
mean on either would be found.
"""

import json
import re
import struct
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import h3.api.basic_str as h3
import pytest

from hatcast.stream.hybrid import DeviceReport, decode_report
from tests.integration.crashing_worker import die_after
from tests.integration.harness import Pipeline, open_pipeline
from tests.services import KafkaServer, RedisServer

CENTRAL, LOCAL = 300, 200
NOON: Final = 1_641_124_800_000  # 2022-01-02T12:00Z
PLACES: Final = [(21.20, 72.80), (21.30, 72.80)]
CELLS: Final = [h3.latlng_to_cell(*place, 7) for place in PLACES]
STEP: Final = Fraction(1, 10**6)  # the grid, km/h
BOUND, SIGMA, LOCAL_EPSILON, EPSILON = 10**6, 2 * 10**5, 3, 4 * 10**7
CHANGES: Final = {
    "policy": {
        "upper_bound": 1e6,
        "reject_above": "none",
        "grid": 1e-6,
        "privacy": {
            "epsilon": 4e7,
            "acknowledge_weak_privacy": True,
            "local_epsilon": 3.0,
            "daily_limit": 1e9,
            "max_hats_per_day": 2,
        },
        "estimator": {"name": "kvh", "sigma": 2e5, "groups": "separate"},
    }
}

NOISE: Final = 40 * BOUND / Fraction(EPSILON * CENTRAL) + STEP
"""40 scales of the operator's noise: more comes once in e^40 releases"""

Hash = dict[bytes, bytes]  # redis-py types its answers for text and bytes at once
Means = dict[str, dict[str, Fraction]]  # cell -> bus -> its own mean, km/h


def bus(number: int) -> str:
    return f"BUS-{number:03}"


def hour() -> Iterator[dict[str, Any]]:
    """Six readings of each bus between 12:00 and 13:00, three in each place, in the order of their times."""
    for minute in range(6):
        for number in range(CENTRAL + LOCAL):
            lat, lon = PLACES[minute % 2]
            speed = 5 + (number * 7919 + minute * 104_729) % 50_000 / 1000
            at = NOON + minute * 540_000 + number * 1000
            yield {"vehicle": bus(number), "time": at, "lat": lat, "lon": lon, "speed": speed, "unit": "km/h"}


def true_means() -> Means:
    speeds: dict[str, dict[str, list[Fraction]]] = {cell: {} for cell in CELLS}
    for reading in hour():
        cell = h3.latlng_to_cell(reading["lat"], reading["lon"], 7)
        speeds[cell].setdefault(reading["vehicle"], []).append(Fraction(repr(reading["speed"])))
    return {
        cell: {name: sum(of, Fraction(0)) / len(of) for name, of in buses.items()} for cell, buses in speeds.items()
    }


def weight() -> Fraction:
    """[H Lemma 4.1]: w* for these two groups."""
    n, c = Fraction(CENTRAL + LOCAL), Fraction(CENTRAL, CENTRAL + LOCAL)
    central_noise = 2 * (Fraction(BOUND, EPSILON) / (c * n)) ** 2
    local_noise = 2 * Fraction(BOUND, LOCAL_EPSILON) ** 2
    return c * (SIGMA**2 + local_noise) / (SIGMA**2 + c * (n * central_noise * (1 - c) + local_noise))


@pytest.fixture(scope="module")
def hybrid(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Pipeline, dict[str, bytes]]]:
    """The whole run, with two workers killed, and what Redis held of releases when the second was."""
    with open_pipeline(kafka, redis_server, tmp_path_factory.mktemp("hybrid"), "hybrid", CHANGES) as pipeline:
        recording, local = pipeline.folder / "hour.jsonl", pipeline.folder / "local.txt"
        recording.write_text("".join(f"{json.dumps(reading)}\n" for reading in hour()))
        local.write_text("".join(f"{bus(CENTRAL + number)}\n" for number in range(LOCAL)))
        first = pipeline.worker()
        pipeline.replay(recording, "jsonl", "--speedup", 0, "--except-vehicles", local)
        pipeline.wait(lambda: pipeline.folded() == 6 * CENTRAL, "fold of telemetry", first)
        first.kill()
        pipeline.bury()
        fleet(pipeline, recording, local)
        pipeline.worker(wrap=partial(die_after, "committed")).wait()
        pipeline.bury()
        committed = records(pipeline)
        last = pipeline.worker()
        pipeline.wait(pipeline.is_settled, "end of releases", last)
        assert last.terminate() == 0
        yield pipeline, committed


def fleet(pipeline: Pipeline, recording: Path, local: Path) -> None:
    state = pipeline.folder / "fleet.db"
    pipeline.run(
        "device", recording, "--vehicles-file", local, "--speedup", 0, "--state", state, "--format", "jsonl", "--json"
    )


def records(pipeline: Pipeline) -> dict[str, bytes]:
    """Every release in Redis."""
    with closing(pipeline.redis_server.client()) as redis:
        names = cast("list[bytes]", redis.keys(f"{{{pipeline.settings.topics.telemetry}}}:releases:*"))
        tables = [cast("Hash", redis.hgetall(name)) for name in names]
        return {key.decode(): value for table in tables for key, value in table.items()}


def reports(pipeline: Pipeline) -> dict[str, list[DeviceReport]]:
    """Cell -> what devices sent."""
    found: dict[str, list[DeviceReport]] = {cell: [] for cell in CELLS}
    for received in pipeline.kafka.read(pipeline.settings.topics.reports):
        if received.value:
            report = decode_report(received.value)
            assert report is not None
            found[report.cell].append(report)
    return found


def published(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """Cell -> its release."""
    return {(record := json.loads(values[0]))["cell"]: record for values in pipeline.published().values()}


def test_every_device_sent_one_report_for_each_place_under_one_id(hybrid: tuple[Pipeline, dict[str, bytes]]) -> None:
    sent = reports(hybrid[0])
    ids = {cell: [report.id for report in of] for cell, of in sent.items()}
    assert [len(of) for of in ids.values()] == [LOCAL, LOCAL]
    assert len(set(ids[CELLS[0]])) == LOCAL
    assert set(ids[CELLS[0]]) == set(ids[CELLS[1]])


def test_the_releases_weight_is_what_the_formula_says(hybrid: tuple[Pipeline, dict[str, bytes]]) -> None:
    found = published(hybrid[0])
    assert found.keys() == set(CELLS)
    for record in found.values():
        assert record["status"] == "released"
        assert record["users"] == {"central": CENTRAL, "local": LOCAL}
        assert abs(Fraction(repr(record["weight"])) - weight()) <= Fraction(1, 10**6)
        assert 0.85 < record["weight"] < 0.95  # neither the share of central users, 0.6, nor all


def test_the_release_says_what_it_estimates_and_every_epsilon(hybrid: tuple[Pipeline, dict[str, bytes]]) -> None:
    for record in published(hybrid[0]).values():
        assert (record["target"], record["estimator"]) == ("user_mean", "kvh")
        assert (record["epsilon"], record["device_epsilon"], record["public_epsilon"]) == (4e7, 3.0, 4e7)
        assert record["noise"]["kind"] == "laplace_blend"


def test_each_mean_is_the_blend_of_true_central_means_and_of_what_devices_sent(
    hybrid: tuple[Pipeline, dict[str, bytes]],
) -> None:
    sent, means = reports(hybrid[0]), true_means()
    for cell, record in published(hybrid[0]).items():
        central = sum((means[cell][bus(number)] for number in range(CENTRAL)), Fraction(0)) / CENTRAL
        local = sum((Fraction(report.value) for report in sent[cell]), Fraction(0)) / LOCAL
        expected = weight() * central + (1 - weight()) * local
        assert abs(Fraction(str(record["raw"])) - expected) <= NOISE


def test_each_groups_own_mean_is_published_beside_the_blend(hybrid: tuple[Pipeline, dict[str, bytes]]) -> None:
    sent, means = reports(hybrid[0]), true_means()
    for cell, record in published(hybrid[0]).items():
        of_central, of_local = record["groups"]["central"], record["groups"]["local"]
        central = sum((means[cell][bus(number)] for number in range(CENTRAL)), Fraction(0)) / CENTRAL
        local = sum((Fraction(report.value) for report in sent[cell]), Fraction(0)) / LOCAL
        assert abs(Fraction(str(of_central["raw"])) - central) <= NOISE
        assert abs(Fraction(str(of_local["raw"])) - local) <= STEP
        assert (of_central["users"], of_central["epsilon"], of_central["public_epsilon"]) == (CENTRAL, 4e7, 4e7)
        assert (of_local["users"], of_local["epsilon"], of_local["public_epsilon"]) == (LOCAL, 3.0, 3.0)
        assert record["noise"] == of_central["noise"] | of_local["noise"]


def test_no_kill_changed_a_value_and_every_byte_is_what_was_committed(
    hybrid: tuple[Pipeline, dict[str, bytes]],
) -> None:
    pipeline, committed = hybrid
    assert committed  # the worker died after a commit
    values = pipeline.published(committed=False)
    assert all(len(set(of)) == 1 for of in values.values())
    assert {name: of[0] for name, of in values.items()} == records(pipeline)
    assert committed.items() <= records(pipeline).items()


def test_batch_over_both_dumps_gives_the_same_means(hybrid: tuple[Pipeline, dict[str, bytes]]) -> None:
    pipeline, _ = hybrid
    dumps = {topic: pipeline.folder / f"{topic}.jsonl" for topic in ("telemetry", "reports")}
    for topic, dump in dumps.items():
        pipeline.run("dump", topic, "--output", dump)
    ledger = pipeline.folder / "ledger"
    done = pipeline.run(
        "batch", dumps["telemetry"], "--format", "kafka", "--reports", dumps["reports"], "--ledger", ledger, "--json"
    )
    found = {(record := json.loads(line))["cell"]: record for line in done.out.splitlines()}
    live = published(pipeline)
    assert found.keys() == live.keys()
    for cell, record in found.items():
        assert abs(Decimal(repr(record["raw"])) - Decimal(repr(live[cell]["raw"]))) <= 2 * Decimal(str(float(NOISE)))
        for name, group in record["groups"].items():
            of_live = live[cell]["groups"][name]
            noise = 0 if name == "local" else 2 * Decimal(str(float(NOISE)))
            assert abs(Decimal(repr(group["raw"])) - Decimal(repr(of_live["raw"]))) <= noise
            assert {**group, "raw": 0, "mean": 0, "interval95": 0} == {**of_live, "raw": 0, "mean": 0, "interval95": 0}
        same = ("weight", "users", "noise", "target", "device_epsilon", "policy_id", "release_id")
        assert {key: record[key] for key in same} == {key: live[cell][key] for key in same}


def test_the_ledger_charges_a_release_what_the_group_pays_that_pays_more(
    hybrid: tuple[Pipeline, dict[str, bytes]],
) -> None:
    (budget,) = hybrid[0].budget_records().values()
    assert (budget["releases"], budget["epsilon_user_day"]) == (2, 8e7)


def test_the_operators_stores_and_topics_never_hold_a_local_devices_true_mean(
    hybrid: tuple[Pipeline, dict[str, bytes]],
) -> None:
    """By the text of the mean and of its reading, and by any way in which the fold packs a number.

    A device's noise has a scale of 3e11 steps, so one of 400 reports equals one of 400 means by chance once in four
    million runs. A report that only ends like a mean, as 130.581667 ends like 30.581667, is another number.
    """
    pipeline, means = hybrid[0], true_means()
    shift = offset(pipeline)
    needles, numbers = set(), set()
    for cell in CELLS:
        for number in range(CENTRAL, CENTRAL + LOCAL):
            steps = round(means[cell][bus(number)] / STEP)
            numbers.add(f"{Decimal(steps) / 10**6:.6f}".encode())
            needles |= {struct.pack("<q", steps + shift), bus(number).encode()}
    held = list(everything(pipeline))
    assert sum(map(len, held)) > 100_000
    assert [needle for needle in needles if any(needle in text for text in held)] == []
    in_texts = {number for text in held for number in re.findall(rb"\d+\.\d{6}", text)}
    assert len(in_texts) > LOCAL * len(CELLS) / 2, "reports are found by this pattern"
    assert numbers & in_texts == set()
    ours = bus(0).encode()
    assert any(ours in text for text in held)  # a bus that trusts the operator is found: the search works


def offset(pipeline: Pipeline) -> int:
    from hatcast.stream.hybrid import HybridParameters, report_bound

    return report_bound(HybridParameters.of(pipeline.settings.policy))


def everything(pipeline: Pipeline) -> Iterator[bytes]:
    """Every key and value of ours in Redis, and every record of all topics, with their keys."""
    with closing(pipeline.redis_server.client()) as redis:
        keys = cast("list[bytes]", redis.keys(f"{{{pipeline.name}*"))
        for key in keys:
            yield from (key, cast("bytes", redis.dump(key)))
            if redis.type(key) == b"string":
                yield cast("bytes", redis.get(key))
            elif redis.type(key) == b"hash":
                yield from (part for pair in cast("Hash", redis.hgetall(key)).items() for part in pair)
    topics = pipeline.settings.topics
    for topic in (topics.telemetry, topics.reports, topics.means, topics.budget, topics.dead_letters):
        for received in pipeline.kafka.read(topic, committed=False):
            yield (received.key or b"") + b" " + (received.value or b"")
