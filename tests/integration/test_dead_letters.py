"""Dead letters on a real broker: place and reason, cut to a rate, in nobody's way."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import jsonschema
import pytest
from aiokafka import AIOKafkaProducer

from hatcast.agents.kafka.dead_letters import DeadLetters
from tests.services import KafkaServer
from tests.services.data import ROOT
from tests.services.fixtures import MakeTopic

SCHEMA = json.loads((ROOT / "schemas" / "dead-letter.schema.json").read_text())


def run(kafka: KafkaServer, topic: str, use: Callable[[DeadLetters], Awaitable[None]]) -> DeadLetters:
    """Use dead letters with a producer of their own; the limit is 20 a second."""

    async def started() -> DeadLetters:
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, request_timeout_ms=2_000)
        await producer.start()
        try:
            letters = DeadLetters(producer, topic, "buses", per_second=20)
            await use(letters)
        finally:
            await producer.stop()
        return letters

    return asyncio.run(started())


def test_a_dead_letter_says_where_the_record_stands_and_no_more(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=1)

    async def use(letters: DeadLetters) -> None:
        letters.add(3, 17, "undecodable")
        letters.add(4, 18, "bad_record")
        await letters.flush()

    assert run(kafka, topic, use).sent == 2
    received = kafka.read(topic)
    assert [record.key for record in received] == [None, None]
    assert [json.loads(record.value or b"") for record in received] == [
        {"topic": "buses", "partition": 3, "offset": 17, "reason": "undecodable"},
        {"topic": "buses", "partition": 4, "offset": 18, "reason": "bad_record"},
    ]
    for record in received:
        jsonschema.validate(json.loads(record.value or b""), SCHEMA)


def test_a_flood_of_dead_letters_is_cut_and_counted(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=1)

    async def use(letters: DeadLetters) -> None:
        for offset in range(10_000):
            letters.add(0, offset, "undecodable")
        await letters.flush()

    letters = run(kafka, topic, use)
    assert letters.sent == len(kafka.read(topic))
    assert letters.sent <= 40  # the loop may cross the end of a second
    assert letters.sent + letters.dropped == 10_000


def test_a_topic_that_does_not_take_them_holds_up_nothing(kafka: KafkaServer, unique_name: str) -> None:
    async def use(letters: DeadLetters) -> None:
        letters.add(0, 1, "undecodable")
        await letters.flush()

    letters = run(kafka, unique_name, use)
    assert (letters.sent, letters.dropped) == (0, 1)


def test_letters_that_kafka_does_not_take_end_with_the_time_of_a_flush(kafka: KafkaServer, unique_name: str) -> None:
    async def use(letters: DeadLetters) -> None:
        for offset in range(20):
            letters.add(0, offset, "undecodable")
        async with asyncio.timeout(20):  # one after the other each takes two seconds, aiokafka's timeout
            await letters.flush()

    letters = run(kafka, unique_name, use)
    assert (letters.sent, letters.dropped) == (0, 20)


def test_a_reason_that_the_contract_does_not_know_is_a_mistake_of_ours(kafka: KafkaServer, unique_name: str) -> None:
    async def use(letters: DeadLetters) -> None:
        letters.add(0, 1, "because")

    with pytest.raises(ValueError, match="because"):
        run(kafka, unique_name, use)
