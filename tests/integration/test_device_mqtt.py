"""A device's readings from a real mosquitto."""

import asyncio
import queue

from aiomqtt import Client, MqttError

from hatcast.agents.device.closing import Arrived
from hatcast.agents.device.sources import MqttTopic, mqtt_readings
from hatcast.stream.readings.formats import FORMATS
from tests.devices import NOON, line
from tests.services.mosquitto import Mosquitto

TRIES = 300


def speed_after_publishing(mosquitto: Mosquitto, arrived: "queue.Queue[Arrived]", speed: float) -> float:
    """Publish a reading again and again, garbage beside it, until one of this speed has come."""

    async def publish() -> None:
        async with Client("127.0.0.1", mosquitto.port) as client:
            await client.publish("bus/7", b"{garbage")
            await client.publish("bus/8", line("another", NOON, 99.0))
            await client.publish("bus/7", line("bus", NOON, speed), qos=1)

    for _ in range(TRIES):
        try:
            asyncio.run(publish())
            each = arrived.get(timeout=0.2)
        except (queue.Empty, MqttError):
            continue
        while each is not None:
            assert each[1].vehicle == "bus"
            if each[1].speed == speed:
                return speed
            each = arrived.get(timeout=60)
    raise AssertionError("the reading did not come")


def test_a_device_reads_its_own_topic_and_comes_back_to_a_broker_that_was_away(mosquitto: Mosquitto) -> None:
    published = MqttTopic.parse(f"mqtt://127.0.0.1:{mosquitto.port}/bus/7", {})
    with mqtt_readings(published, FORMATS["jsonl"]) as arrived:
        assert speed_after_publishing(mosquitto, arrived, 20.0) == 20.0
        mosquitto.stop()
        mosquitto.start()
        assert speed_after_publishing(mosquitto, arrived, 30.0) == 30.0
    while arrived.get(timeout=60) is not None:  # the end of the block is the end of the source
        pass
