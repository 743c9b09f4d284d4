"""Messages of MQTT that mean harm, through a real mosquitto: none holds up the session, and no valid one is lost."""

import asyncio

import pytest
from aiomqtt import Client

from hatcast.agents.sources.connection import MESSAGE_BYTES_MAX
from tests.integration.bridging import arrived, body, bridge, sent, stopped
from tests.integration.harness import Pipeline
from tests.integration.test_bridge_mqtt import arrived_after_subscription, publish, source
from tests.services.mosquitto import Mosquitto

DEEP = b'{"vehicle":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
NAMES = ("a/$SYS/b", "a//b", "a/\N{SNOWMAN}/b", "a/../b", "a/" + "b/" * 100, "a/%23", "a/{vehicle}")


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_payloads_that_are_too_large_and_garbage_do_not_hold_up_what_is_valid(
    protocol: str, pipeline: Pipeline, mosquitto: Mosquitto
) -> None:
    large = body(0) + b" " * MESSAGE_BYTES_MAX

    async with bridge(pipeline, "jsonl", lambda: source(mosquitto, pipeline, protocol)) as task:
        await arrived_after_subscription(pipeline, mosquitto, task)
        garbage = [large, DEEP, bytes(range(256)) * 100, b"\n" * 100_000, body(1), large]
        await publish(mosquitto, f"{pipeline.name}/a", garbage)
        for number, name in enumerate(NAMES, 2):
            await publish(mosquitto, f"{pipeline.name}/{name}", [body(number)])
        wanted = {sent(number) for number in range(2 + len(NAMES))}
        found = await arrived(pipeline, task, lambda found: wanted <= found.keys())
        summary = await stopped(task)
    assert found.keys() == wanted
    assert (summary.losses, summary.unconfirmed, summary.dropped) == (0, 0, 0)


async def test_a_retained_message_comes_once_and_a_repeated_one_as_often_as_it_was_sent(
    pipeline: Pipeline, mosquitto: Mosquitto
) -> None:
    topic = f"{pipeline.name}/retained"
    async with Client("127.0.0.1", mosquitto.port) as client:
        await client.publish(topic, body(0), 1, retain=True)
    async with bridge(pipeline, "jsonl", lambda: source(mosquitto, pipeline)) as task:
        await arrived(pipeline, task, lambda found: sent(0) in found)
        await publish(mosquitto, topic, [body(1)] * 2)
        await arrived(pipeline, task, lambda found: found[sent(1)] == 2)
        await stopped(task)
    async with bridge(pipeline, "jsonl", lambda: source(mosquitto, pipeline)) as task:
        await publish(mosquitto, topic, [body(2)] * 2)  # the session is the same, and had the retained message
        found = await arrived(pipeline, task, lambda found: found[sent(2)] == 2)
        await stopped(task)
    assert found == {sent(0): 1, sent(1): 2, sent(2): 2}
    async with Client("127.0.0.1", mosquitto.port) as client:
        await client.publish(topic, b"", 1, retain=True)  # the broker forgets it


async def test_a_flood_arrives_whole_at_qos_1(pipeline: Pipeline, mosquitto: Mosquitto) -> None:
    async with bridge(pipeline, "jsonl", lambda: source(mosquitto, pipeline), buffer=100) as task:
        await arrived_after_subscription(pipeline, mosquitto, task)
        await asyncio.gather(
            *(publish(mosquitto, f"{pipeline.name}/a", map(body, range(at, 2_000, 4))) for at in range(4))
        )
        found = await arrived(pipeline, task, lambda found: len(found) == 2_000)
        summary = await stopped(task)
    assert found.keys() == {sent(number) for number in range(2_000)}
    assert (summary.dropped, summary.unconfirmed) == (0, 0)
