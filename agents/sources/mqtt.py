"""MQTT source. At QoS 1, messages are acknowledged once Kafka has their readings, and the session is persistent.

aiomqtt has no manual acknowledgement, so the paho client below it is used for that.
"""

import asyncio
import hashlib
import logging
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiomqtt import Client, Message, MqttCodeError, MqttError, ProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from hatcast.agents.monitoring.declarations import BRIDGE_DROPPED
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.sources.connection import MESSAGE_BYTES_MAX, AckTracker, SourceConnection
from hatcast.agents.sources.endpoint import Endpoint, SourceLost, SourceRejection, source_error

NAME: Final = "mqtt"
PROTOCOLS: Final = {"5": ProtocolVersion.V5, "3.1.1": ProtocolVersion.V311}
RECEIVE_MAXIMUM: Final = 1_000  # unacknowledged QoS 1 messages that the broker may send (MQTT 5)
_QUEUE_BYTES_MAX: Final = 64 << 20
_YIELD_EVERY: Final = 100  # messages between two yields to the event loop
_TIMEOUT_S: Final = 10.0
_KEEPALIVE_S: Final = 30

# Silence paho's logger: our own log lines report its failures.
logging.getLogger("mqtt").addHandler(logging.NullHandler())
logging.getLogger("mqtt").propagate = False

# Permanent CONNACK reason codes; paho maps the return codes of 3.1.1 to the same numbers. [MQTT 5.0, 3.2.2.2]
_REJECTIONS: Final = {
    132: "it does not support this version of MQTT: use --protocol 3.1.1",
    133: "it rejects this client id: name another with --client-id",
    134: "it rejects this user or password: correct --user, --password-file or HATCAST_FEED_PASSWORD",
    135: "it rejects this user or password: correct --user, --password-file or HATCAST_FEED_PASSWORD",
    138: "this client is banned there: name another with --client-id",
    140: "it requires another authentication method: use another user",
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics to subscribe to, and the session."""

    topics: Sequence[str]  # filters, with + and #, or $share/GROUP/FILTER
    qos: int = 1  # 1: the broker sends unacknowledged messages again; 0: it does not
    client_id: str | None = None  # names the session; two bridges with one id disconnect each other
    session_s: int = 86_400  # session expiry interval (MQTT 5; with 3.1.1 the broker's configuration applies)
    protocol: str = "5"

    def identity(self, target: str) -> str:
        """Return the client id: a function of topics, target and host, so that a restart resumes its session.

        Another host gets another id, since many clients may read the same topics of a public broker.
        """
        text = "\n".join((*sorted(self.topics), target, socket.gethostname()))
        return self.client_id or f"hatcast-{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}"


class _ReceiveQueue(asyncio.Queue[Message]):
    """Received messages that were not forwarded yet, bounded in number and bytes.

    The protocol bounds the number of QoS 1 messages by 65,535. Brokers exceed the Receive Maximum: mosquitto 2.0 sends
    all stored messages at once.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.dropped = 0  # QoS 0 messages that did not fit: the broker does not send them again
        self.overrun = False  # a QoS 1 message did not fit: the broker sends it again on the next connection
        self._capacity = capacity
        self._bytes = 0

    def put_nowait(self, item: Message) -> None:
        if self._bytes < _QUEUE_BYTES_MAX and (item.qos or self.qsize() < self._capacity):
            super().put_nowait(item)
        elif item.qos:
            self.overrun = True
        else:
            self.dropped += 1

    def _put(self, item: Message) -> None:
        self._bytes += len(item.payload)
        super()._put(item)

    def _get(self) -> Message:
        item: Message = super()._get()
        self._bytes -= len(item.payload)
        return item


class MqttSource:
    """MQTT client: one connection for each `serve`."""

    name = NAME

    def __init__(self, endpoint: Endpoint, subscription: Subscription, target: str) -> None:
        """Args: `target`, the telemetry topic, a part of the client id."""
        self.where = f"{endpoint} ({', '.join(subscription.topics)})"
        self._endpoint = endpoint
        self._subscription = subscription
        self._client_id = subscription.identity(target)

    async def serve(self, connection: SourceConnection) -> None:
        """Subscribe and forward messages. Raises SourceLost."""
        acks = AckTracker()
        try:
            async with AsyncExitStack() as stack:
                queue = _ReceiveQueue(connection.producer.limit)
                client = self._client(queue)
                # A rejected login leaves the socket open, and a task that watches it.
                stack.callback(client._client._sock_close)  # noqa: SLF001 - disconnect() does not close it either
                await stack.enter_async_context(client)
                stack.callback(acks.clear)  # before the client exits: a closed connection cannot acknowledge
                await self._subscribe(client)
                connection.mark_connected(self)
                await connection.run_until_stopped(self._read(client, queue, connection, acks))
                await connection.drain(acks)
        except MqttError as error:
            raise _connection_error(error) from None

    def _client(self, queue: _ReceiveQueue) -> Client:
        subscription, endpoint = self._subscription, self._endpoint
        is_v5 = subscription.protocol == "5"
        session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho leaves it untyped
        session.SessionExpiryInterval = subscription.session_s
        session.ReceiveMaximum = RECEIVE_MAXIMUM
        session.MaximumPacketSize = MESSAGE_BYTES_MAX
        options: dict[str, Any] = {"clean_start": False, "properties": session} if is_v5 else {}
        client = Client(
            endpoint.host,
            endpoint.port,
            username=endpoint.user,
            password=endpoint.password,
            identifier=self._client_id,
            protocol=PROTOCOLS[subscription.protocol],
            clean_session=None if is_v5 else False,
            queue_type=lambda maxsize: queue,  # type: ignore[arg-type]  # aiomqtt only calls it
            timeout=_TIMEOUT_S,
            keepalive=_KEEPALIVE_S,
            tls_context=endpoint.tls,
            **options,
        )
        client._client.manual_ack_set(on=True)  # noqa: SLF001 - aiomqtt has no option for it
        return client

    async def _subscribe(self, client: Client) -> None:
        subscription = self._subscription
        for topic in subscription.topics:
            if subscription.protocol == "5":
                # Retained messages only for a new session: a reconnect must not repeat them.
                options = SubscribeOptions(qos=subscription.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
                granted = await client.subscribe(topic, options=options)
            else:
                granted = await client.subscribe(topic, qos=subscription.qos)
            code = granted[0].value if isinstance(granted[0], ReasonCode) else granted[0]
            if code >= 128:
                raise SourceRejection(f"it rejects the subscription to {topic}: correct --topic or the user's ACL")

    async def _read(self, client: Client, queue: _ReceiveQueue, connection: SourceConnection, acks: AckTracker) -> None:
        forwarded = dropped = 0
        async for first in client.messages:
            message: Message | None = first
            while message is not None:  # take queued messages directly: aiomqtt would create a task for each
                acknowledge = partial(_acknowledge, client, message)
                if len(message.payload) > MESSAGE_BYTES_MAX:  # MQTT 3.1.1 has no limit to agree on
                    connection.drop_oversized(acks, acknowledge)
                else:
                    await connection.forward(acks, message.payload, acknowledge, message.topic.value)
                forwarded += 1
                if not forwarded % _YIELD_EVERY:
                    await asyncio.sleep(0)
                message = None if queue.empty() else queue.get_nowait()
            connection.dropped += queue.dropped - dropped
            METERS.count(BRIDGE_DROPPED, queue.dropped - dropped)
            dropped = queue.dropped
            if queue.overrun:
                raise SourceLost(f"it sent more than {_QUEUE_BYTES_MAX >> 20} MiB of unacknowledged messages")


def _acknowledge(client: Client, message: Message) -> None:
    if message.qos:
        client._client.ack(message.mid, message.qos)  # noqa: SLF001 - see the module


def _connection_error(error: MqttError) -> SourceLost:
    code = error.rc if isinstance(error, MqttCodeError) else None
    if isinstance(code, ReasonCode):
        text = _REJECTIONS.get(code.value)
        return SourceRejection(text) if text else SourceLost(str(code).lower())
    # An established connection ended: aiomqtt sets the reason as the cause.
    if isinstance(code, int) or isinstance(error.__cause__, MqttError):
        return SourceLost("the connection was closed")
    return source_error(error)
