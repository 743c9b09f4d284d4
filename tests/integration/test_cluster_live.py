"""`hatcast cluster live` with a fleet of devices, on a real Kafka and Redis."""

import asyncio
import json
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.clock import now_ms
from hatcast.stream.kmeans.groups import Devices
from hatcast.stream.kmeans.lloyd import Clusters, cluster
from hatcast.stream.kmeans.setting import ClusteringSetting
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.units import NANO
from tests.contracts.check import closed, message_problems, value_problems
from tests.devices import line, recording
from tests.integration.clustering import (
    CENTRAL,
    CHANGES,
    DATE,
    DEVICES,
    LOCAL,
    TRUSTED,
    City,
    Exact,
    die_after,
    name_of,
    open_city,
    speed_of,
    vectors,
    without_noise,
)
from tests.integration.harness import open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS
from tests.integration.test_consume import golden
from tests.integration.test_private_list import lose
from tests.services import KafkaServer, RedisServer
from tools.schemas import FOLDER, RECORDS


@pytest.fixture
def city(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[City]:
    with open_pipeline(kafka, redis_server, tmp_path, "cluster", CHANGES) as pipeline:
        yield open_city(pipeline)


def simulated(epsilon: float) -> Clusters:
    """The same clustering in this process, without noise."""
    setting = ClusteringSetting(2, 65_000, 2, 3, epsilon, 3)
    return cluster(vectors(CENTRAL), Devices(vectors(LOCAL), setting, Exact()), setting, Exact())


def values_by_key(records: list[tuple[str, bytes]]) -> dict[str, set[bytes]]:
    found: dict[str, set[bytes]] = {}
    for key, value in records:
        found.setdefault(key, set()).add(value)
    return found


def answers(city: City) -> dict[tuple[str, int], set[bytes]]:
    """(device, round) -> the bytes on the topic."""
    found: dict[tuple[str, int], set[bytes]] = {}
    for key, value in city.records("cluster_answers"):
        record = json.loads(value)
        assert record["id"] == key
        found.setdefault((key, record["round"]), set()).add(value)
    return found


def check_centres(found: dict[str, Any], wanted: Clusters) -> None:
    for each, centre, users in zip(found["clusters"], wanted.centres.tolist(), wanted.users.tolist(), strict=True):
        assert [round(speed * 1000) for speed in each["centre"]] == centre
        assert each["users"] == round(users, 1)


def check_contracts(city: City) -> None:
    """Every record on the topics of clusterings is one of its schema, those that are published are CloudEvents."""
    topics = city.pipeline.settings.topics
    for name, topic in (("clusters", topics.clusters), ("cluster-answer", topics.cluster_answers)):
        schema = closed(json.loads((FOLDER / f"{name}.schema.json").read_bytes()))
        messages = [golden(each) for each in city.pipeline.kafka.read(topic)]
        assert messages
        for message in messages:
            assert [*value_problems(schema, message.payload)] == []
            assert [*message_problems(RECORDS[name], message, city.pipeline.name)] == []


def test_without_noise_the_result_is_that_of_the_simulation_and_both_groups_are_charged(city: City) -> None:
    fleet = city.devices("--cluster-epsilon", 8, wrap=without_noise)
    code, out, err = city.cluster("--epsilon", 8, wrap=without_noise)
    assert code == 0, err
    found = json.loads(out)
    check_centres(found, simulated(8))
    assert found["users"] == {"central": TRUSTED, "local": DEVICES}
    assert (found["date"], found["epsilon"], found["status"]) == (DATE, 8.0, "released")
    check_contracts(city)
    assert city.reserved() == {found["ledger"]: (1, 8.0)}
    # Each device answered each round once, and sent its vector once.
    sent = answers(city)
    assert Counter(number for _, number in sent) == {1: DEVICES, 2: DEVICES, 3: DEVICES}
    assert {len(bytes_) for bytes_ in sent.values()} == {1}
    with_vector = [key for key, (value,) in ((key, tuple(each)) for key, each in sent.items()) if b"vector" in value]
    assert {number for _, number in with_vector} == {1}
    # The result is on the public topic, and asking again spends nothing and prints it again.
    published = values_by_key(city.records("clusters"))
    assert json.loads(next(iter(published[f"{found['clustering']}/result"]))) == found
    code, again, _ = city.cluster("--epsilon", 8)
    assert (code, json.loads(again)) == (0, found)
    assert answers(city) == sent
    assert city.reserved() == {found["ledger"]: (1, 8.0)}
    # A Redis that has lost everything gets the charge back from hats.budget.
    assert city.worker is not None
    assert city.worker.terminate() == 0
    charged = {found["ledger"]: Reserved(1, 8 * NANO)}
    assert asyncio.run(city.in_redis()) == charged
    lose(city.pipeline.redis_server, city.pipeline)
    assert asyncio.run(city.in_redis()) == {}
    worker = city.pipeline.worker()
    city.pipeline.wait(lambda: asyncio.run(city.in_redis()) == charged, "the charge again", worker)
    assert city.reserved() == {found["ledger"]: (1, 8.0)}
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(60) == 0
    summary = json.loads((city.pipeline.folder / "fleet.out").read_text().splitlines()[-1])
    assert (summary["answered"], summary["rejected"]) == (3 * DEVICES, 0)


@pytest.mark.parametrize(("step", "number"), [("charged", 0), ("begun", 1), ("sent", 1), ("ended", 1), ("sent", 2)])
def test_a_coordinator_killed_between_two_steps_goes_on_with_the_same_bytes_and_spends_nothing_twice(
    city: City, step: str, number: int
) -> None:
    fleet = city.devices("--cluster-epsilon", 4)
    code, _, err = city.cluster("--epsilon", 4, wrap=partial(die_after, step, number))
    assert code == -signal.SIGKILL, err
    if step == "begun":  # a round that no device has seen is not over, however late the coordinator is started again
        closes_ms = city.closes_ms(number)
        city.pipeline.wait(lambda: now_ms() >= closes_ms, "the end of the round that was not sent")
    before = city.numbers()
    code, out, err = city.cluster("--epsilon", 4)
    assert code == 0, err
    found = json.loads(out)
    # What was drawn before the kill is what the result was computed from.
    after = city.numbers()
    assert [drawn for drawn in before if drawn] == after[: sum(drawn is not None for drawn in before)]
    assert [len(each) for each in values_by_key(city.records("clusters")).values()] == [1] * 4
    sent = answers(city)
    assert {len(bytes_) for bytes_ in sent.values()} == {1}
    assert len({device for device, _ in sent}) == DEVICES
    assert city.reserved() == {found["ledger"]: (1, 4.0)}
    assert found["users"] == {"central": TRUSTED, "local": DEVICES}
    fleet.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("number", [0, 1])
def test_an_older_copy_of_the_state_file_draws_nothing_again(city: City, number: int) -> None:
    fleet = city.devices("--cluster-epsilon", 4)
    step = "ended" if number else "charged"
    assert city.cluster("--epsilon", 4, wrap=partial(die_after, step, number))[0] == -signal.SIGKILL
    # The file as it was before the first round's noise was drawn.
    with (
        closing(sqlite3.connect(city.pipeline.folder / "clustering.db")) as file,
        closing(sqlite3.connect(city.pipeline.folder / "copy.db")) as copy,
    ):
        file.backup(copy)
        copy.execute("UPDATE rounds SET numbers = NULL")
        copy.commit()
    code, out, err = city.cluster("--epsilon", 4)
    assert code == 0, err
    published, sent = city.records("clusters"), answers(city)
    for _ in range(2):
        code, again, err = city.cluster("--epsilon", 4, state="copy.db")
        assert (code, again, err.count("\n")) == (1, "", 1)
        assert "does not have what" in err
        assert "another --state" in err
    assert not any(city.numbers("copy.db")), "its noise was not drawn again"
    assert (city.records("clusters"), answers(city)) == (published, sent)
    assert json.loads(city.cluster("--epsilon", 4)[1]) == json.loads(out)
    fleet.send_signal(signal.SIGKILL)


def test_trusted_buses_of_recordings_are_charged_in_the_ledger_file_of_batch(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "cluster-file", CHANGES) as pipeline:
        path = recording(
            tmp_path / "day.jsonl",
            [
                line(name_of(bus), NOON_MS + slot * HOUR_MS + bus, speed_of(bus, slot))
                for slot in range(2)
                for bus in CENTRAL
            ],
        )
        city, ledger = City(pipeline, None), tmp_path / "ledger.db"
        given = (path, "--format", "jsonl", "--ledger", ledger, "--blend", "tcm_only")
        code, out, err = city.cluster("--epsilon", 10, *given)
        assert code == 0, err
        found = json.loads(out)
        assert found["users"] == {"central": TRUSTED, "local": 0}
        with open_ledger(ledger, pipeline.settings.policy) as book:
            assert book.summary(DATE).queries == {found["ledger"]: Reserved(1, 10 * NANO)}
        for number in range(9):
            assert city.cluster("--epsilon", 10, *given, state=f"{number}.db")[0] == 0
        code, _, err = city.cluster("--epsilon", 6, *given, state="no_room.db")
        assert code == 1
        assert f"{DATE} has no room for epsilon 6" in err


def test_devices_beyond_their_own_epsilon_answer_nothing(city: City) -> None:
    fleet = city.devices("--cluster-epsilon", 5)
    code, _, err = city.cluster("--epsilon", 4, "--blend", "lm_only")
    assert code == 0, err
    sent = answers(city)
    code, _, err = city.cluster("--epsilon", 4, "--blend", "lm_only", state="second.db")
    assert code == 1
    assert "0 trusted users and 0 devices are fewer than policy.privacy.min_users" in err
    assert answers(city) == sent
    # 4 + 1 is within 5: the budget counts what was spent, not how often.
    code, out, err = city.cluster("--epsilon", 1, "--blend", "lm_only", state="third.db")
    assert code == 0, err
    assert json.loads(out)["users"] == {"central": 0, "local": DEVICES}
    fleet.send_signal(signal.SIGKILL)
