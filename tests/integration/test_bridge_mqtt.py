"""`hatcast feed mqtt` against a real mosquitto and a real Kafka.
Messages of MQTT that mean harm, through a real mosquitto: none holds up the session, and no valid one is lost.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable

import pytest
from aiomqtt import Client

from hatcast.agents.clock import cancel_all, now_ms
from hatcast.agents.monitoring.declarations import BRIDGE_BUFFER, BRIDGE_UNDECODABLE, BRIDGE_UP
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.sources.connection import MESSAGE_BYTES_MAX
from hatcast.agents.sources.endpoint import Endpoint, tls_context
from hatcast.agents.sources.mqtt import MqttSource, Subscription
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import Columns
from tests.exposed import figures
from tests.integration.bridging import SECONDS, arrived, body, bridge, sent, stopped, until
from tests.integration.harness import Pipeline
from tests.services import KafkaServer
from tests.services.lifecycle import free_ports
from tests.services.mosquitto import PASSWORD, USER, Mosquitto

HFP = (
    "/hfp/v2/journey/ongoing/vp/tram/0040/00436/1003/1/Pikku Huopalahti/12:50/1160403/4/60;24/28/09/38",
    b'{"VP": {"oper": 40, "veh": 436, "tst": "2025-03-12T11:24:51.251Z", "spd": 5.5, "lat": 60.2, "long": 24.8}}',
)


def source(mosquitto: Mosquitto, pipeline: Pipeline, protocol: str = "5") -> MqttSource:
    wanted = Subscription([f"{pipeline.name}/#"], protocol=protocol)
    return MqttSource(Endpoint("127.0.0.1", mosquitto.port), wanted, pipeline.name)


async def publish(mosquitto: Mosquitto, topic: str, bodies: Iterable[bytes], qos: int = 1) -> None:
    async with Client("127.0.0.1", mosquitto.port) as client:
        for each in bodies:
            await client.publish(topic, each, qos)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
async def test_a_reading_arrives_dated_by_the_bridge_and_garbage_is_only_counted(
    protocol: str, pipeline: Pipeline, mosquitto: Mosquitto
) -> None:
    began = now_ms()
    made = source(mosquitto, pipeline, protocol)
    before = figures(METERS.render()[0].decode(), BRIDGE_UNDECODABLE.name).get((), 0.0)
    async with bridge(pipeline, "jsonl", lambda: made) as task:
        # Published again and again until it is there: a session begins with the first connection.
        await arrived_after_subscription(pipeline, mosquitto, task)
        await publish(mosquitto, f"{pipeline.name}/a", [b"{garbage", body(1), b"\xff", b"", body(2)])
        found = await arrived(pipeline, task, lambda found: {sent(1), sent(2)} <= found.keys())
        summary = await stopped(task)
    assert found.keys() == {sent(0), sent(1), sent(2)}
    assert summary.undecodable == 2  # an empty message is no record at all
    assert summary.records == sum(found.values())
    assert (summary.unconfirmed, summary.dropped) == (0, 0)
    assert figures(METERS.render()[0].decode(), BRIDGE_UNDECODABLE.name)[()] == before + 2
    for record in pipeline.kafka.read(pipeline.name):
        assert began <= record.timestamp_ms <= now_ms()


async def test_messages_of_other_names_units_and_times_arrive_as_canonical_records(
    pipeline: Pipeline, mosquitto: Mosquitto
) -> None:
    columns = Columns({"vehicle": "bus.no", "time": "ts", "lat": "at.1", "lon": "at.0", "speed": "v"}, "m/s", "s")
    expected = ("7", 1641101383000)

    message = b'{"bus": {"no": 7}, "ts": 1641101383, "at": [72.8, 21.2], "v": "10"}'
    async with bridge(pipeline, "jsonl", lambda: source(mosquitto, pipeline), columns=columns) as task:
        publishing = asyncio.create_task(again_and_again(mosquitto, f"{pipeline.name}/a", message))
        found = await arrived(pipeline, task, lambda found: expected in found)
        await cancel_all([publishing])
        await stopped(task)
    assert set(found) == {expected}
    values = {record.value for record in pipeline.kafka.read(pipeline.name) if record.key is not None}
    assert values == {b'{"vehicle":"7","time":1641101383000,"lat":21.2,"lon":72.8,"speed":10.0,"unit":"m/s"}'}


async def arrived_after_subscription(pipeline: Pipeline, mosquitto: Mosquitto, task: "asyncio.Task[object]") -> None:
    """Reading 0 has come through, so the subscription stands and the broker keeps what comes from now on."""
    publishing = asyncio.create_task(again_and_again(mosquitto, f"{pipeline.name}/first"))
    try:
        await arrived(pipeline, task, lambda found: sent(0) in found)  # type: ignore[arg-type]  # the lambda is of any set
    finally:
        await cancel_all([publishing])


async def again_and_again(mosquitto: Mosquitto, topic: str, message: bytes | None = None) -> None:
    while True:
        await publish(mosquitto, topic, [body(0) if message is None else message])
        await asyncio.sleep(0.2)


async def test_a_bridge_that_is_killed_while_kafka_is_away_has_told_its_broker_of_nothing(
    pipeline: Pipeline, mosquitto: Mosquitto, breakable_kafka: KafkaServer
) -> None:
    made = source(mosquitto, pipeline)
    async with bridge(pipeline, "jsonl", lambda: made, buffer=20) as task:
        await arrived_after_subscription(pipeline, mosquitto, task)
        breakable_kafka.pause()
        await publish(mosquitto, f"{pipeline.name}/a", map(body, range(1, 51)))
        await until(lambda: full(METERS.render()[0].decode()), task)
    await publish(mosquitto, f"{pipeline.name}/a", map(body, range(51, 61)))  # nobody is there
    breakable_kafka.resume()
    async with bridge(pipeline, "jsonl", lambda: source(mosquitto, pipeline)) as task:
        found = await arrived(pipeline, task, lambda found: len(found) >= 61)
        await stopped(task)
    assert found.keys() == {sent(number) for number in range(61)}
    async with bridge(pipeline, "jsonl", lambda: source(mosquitto, pipeline)) as task:
        await publish(mosquitto, f"{pipeline.name}/a", [body(61)])
        await arrived(pipeline, task, lambda found: sent(61) in found)
        # What the broker was told of it does not send again: this bridge has had one message.
        assert (await stopped(task)).records == 1


def full(page: str) -> bool:
    """Whether the buffer between source and Kafka is."""
    return figures(page, BRIDGE_BUFFER.name).get((), 0.0) >= 1.0


async def test_a_broker_with_tls_and_users_is_found_again_after_it_was_restarted(
    pipeline: Pipeline, mosquitto: Mosquitto
) -> None:
    access = Endpoint("127.0.0.1", mosquitto.tls_port, USER, PASSWORD, tls_context(mosquitto.certificate.ca_file))

    async with bridge(pipeline, "hfp", lambda: MqttSource(access, Subscription(["/hfp/v2/#"]), pipeline.name)) as task:
        await until(lambda: is_up(METERS.render()[0].decode()), task)
        await publish_securely(access, *HFP)
        await arrived(pipeline, task, lambda found: len(found) == 1)
        mosquitto.stop()
        await until(lambda: not is_up(METERS.render()[0].decode()), task)
        mosquitto.start()
        await until(lambda: is_up(METERS.render()[0].decode()), task)
        topic, payload = HFP
        await publish_securely(access, topic, payload.replace(b"11:24:51", b"11:24:52"))
        found = await arrived(pipeline, task, lambda found: len(found) == 2)
        assert (await stopped(task)).losses >= 1
    assert found.keys() == {("0040/00436", f"2025-03-12T11:24:5{second}.251Z") for second in (1, 2)}


def is_up(page: str) -> bool:
    return figures(page, BRIDGE_UP.name).get(()) == 1.0


async def publish_securely(access: Endpoint, topic: str, payload: bytes) -> None:
    async with Client(
        access.host, access.port, username=access.user, password=access.password, tls_context=access.tls
    ) as client:
        await client.publish(topic, payload, 1)


@pytest.mark.parametrize(
    ("password", "trusted", "says"),
    [("wrong secret", True, "HATCAST_FEED_PASSWORD"), (PASSWORD, False, "certificate is not trusted")],
)
async def test_a_broker_that_will_never_let_us_in_ends_the_bridge_in_one_line_without_the_secret(
    password: str, *, trusted: bool, says: str, pipeline: Pipeline, mosquitto: Mosquitto
) -> None:
    tls = tls_context(mosquitto.certificate.ca_file if trusted else None)
    access = Endpoint("127.0.0.1", mosquitto.tls_port, USER, password, tls)

    with pytest.raises(HatcastError) as refusal:
        made = MqttSource(access, Subscription([f"{pipeline.name}/#"]), pipeline.name)
        async with bridge(pipeline, "jsonl", lambda: made) as task:
            await asyncio.wait_for(task, SECONDS)
    assert says in str(refusal.value)
    assert password not in str(refusal.value)
    assert password not in repr(access)


def test_a_connection_whose_certificate_is_not_trusted_is_closed_at_once(mosquitto: Mosquitto) -> None:
    """A bridge that has been connected tries again, and its client closes no such connection."""
    with socket.create_connection(("127.0.0.1", mosquitto.tls_port), timeout=SECONDS) as plain:
        wrapped = tls_context().wrap_socket(plain, server_hostname="127.0.0.1", do_handshake_on_connect=False)
        with pytest.raises(ssl.SSLCertVerificationError):
            wrapped.do_handshake()
        assert wrapped.fileno() == -1


def test_a_broker_that_never_answers_fails_the_command_with_its_reason(pipeline: Pipeline) -> None:
    with free_ports(1) as (port,):
        done = pipeline.hatcast(
            "feed",
            "mqtt",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--topic",
            "a",
            "--format",
            "jsonl",
            "--for",
            "5",  # Kafka is asked first, then the broker
        )
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith(f"hatcast: mqtt at 127.0.0.1:{port}")
    assert "was never reached (" in last
    assert last.endswith("check that it runs, and its address, port and TLS options")


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
