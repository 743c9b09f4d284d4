"""MQTT: at QoS 1 the broker is told of a message once Kafka has its readings, and keeps the session while we are away.

What aiomqtt has no name for is done on the paho client beneath it: acknowledging by hand.
"""

import asyncio
import hashlib
import logging
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from aiomqtt import Client, Message, MqttCodeError, MqttError, ProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from hatcast.agents.sources.acknowledgements import Window
from hatcast.agents.sources.connection import SourceConnection
from hatcast.agents.sources.endpoint import Endpoint, SourceLost, SourceRefuses, lost

NAME: Final = "mqtt"
PROTOCOLS: Final = {"5": ProtocolVersion.V5, "3.1.1": ProtocolVersion.V311}
PAYLOAD_BYTES_MAX: Final = 1 << 20
WAITING_MAX: Final = 1_000  # messages that we have not told the broker of: it is to send no more before (MQTT 5)
_WAITING_BYTES_MAX: Final = 64 << 20
_BREATH: Final = 100  # messages after which others have a turn
_TIMEOUT_S: Final = 10.0
_KEEPALIVE_S: Final = 30

# What paho has to say is said by ours.
logging.getLogger("mqtt").addHandler(logging.NullHandler())
logging.getLogger("mqtt").propagate = False

# Reason codes of CONNACK that no waiting changes; paho gives those of 3.1.1 the same numbers. [MQTT 5.0, 3.2.2.2]
_REFUSED: Final = {
    132: "it does not speak this version of MQTT: use --protocol 3.1.1",
    133: "it does not take this client id: name another with --client-id",
    134: "it does not let this user in: correct --user, --password-file or HATCAST_FEED_PASSWORD",
    135: "it does not let this user in: correct --user, --password-file or HATCAST_FEED_PASSWORD",
    138: "this client is banned there: name another with --client-id",
    140: "it wants another way to log in: use another user",
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is asked of the broker.

    topics     filters, with + and #, or $share/GROUP/FILTER
    qos        1: the broker sends again what was not confirmed; 0: it does not
    client_id  names the session that the broker keeps for us; two bridges with one id throw each other out
    session_s  how long it keeps it while we are away (MQTT 5; with 3.1.1 as the broker is set)
    """

    topics: Sequence[str]
    qos: int = 1
    client_id: str | None = None
    session_s: int = 86_400
    protocol: str = "5"

    def identity(self, target: str) -> str:
        """The client id: the same on this machine for the same topics and target, so that a restart finds its session.

        Another machine's is another one: many may read the same topics of one public broker.
        """
        said = "\n".join((*sorted(self.topics), target, socket.gethostname()))
        return self.client_id or f"hatcast-{hashlib.blake2b(said.encode(), digest_size=6).hexdigest()}"


class _Waiting(asyncio.Queue[Message]):
    """Messages that came and were not handed on: bounded in number and bytes. What does not fit is never only lost.

    dropped   of QoS 0: nobody sends them again
    overrun   one of QoS 1 did not fit: it is sent again on the next connection
    Of QoS 1 there are 65,535 at most, by the protocol. Brokers go above our Receive Maximum: mosquitto 2.0 sends all
    that it has kept at once.
    """

    def __init__(self, room: int) -> None:
        super().__init__()
        self.dropped = 0
        self.overrun = False
        self._room = room
        self._bytes = 0

    def put_nowait(self, item: Message) -> None:
        if self._bytes < _WAITING_BYTES_MAX and (item.qos or self.qsize() < self._room):
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
    """One connection after another to an MQTT broker."""

    name = NAME

    def __init__(self, access: Endpoint, subscription: Subscription, target: str) -> None:
        """Args: `target`, where the readings go: a part of the client id."""
        self.where = f"{access} ({', '.join(subscription.topics)})"
        self._access = access
        self._wanted = subscription
        self._client_id = subscription.identity(target)

    async def serve(self, link: SourceConnection) -> None:
        """Subscribe and hand on. Raises SourceLost."""
        window = Window()
        try:
            async with AsyncExitStack() as held:
                waiting = _Waiting(link.outlet.limit)
                client = self._client(waiting)
                # A login that is refused leaves it open, and a task that looks after it.
                held.callback(client._client._sock_close)  # noqa: SLF001 - disconnect() does not close it either
                await held.enter_async_context(client)
                held.callback(window.forget)  # before the client leaves: nothing is told on a connection that is gone
                await self._subscribe(client)
                link.up(self)
                await link.until_stopped(self._read(client, waiting, link, window))
                await link.settle(window)
        except MqttError as error:
            raise _lost(error) from None

    def _client(self, waiting: _Waiting) -> Client:
        wanted, access = self._wanted, self._access
        newer = wanted.protocol == "5"
        options: dict[str, Any] = {"clean_start": False, "properties": _session(wanted)} if newer else {}
        client = Client(
            access.host,
            access.port,
            username=access.user,
            password=access.password,
            identifier=self._client_id,
            protocol=PROTOCOLS[wanted.protocol],
            clean_session=None if newer else False,
            queue_type=lambda maxsize: waiting,  # type: ignore[arg-type]  # a maker does as well as a type: it is only called
            timeout=_TIMEOUT_S,
            keepalive=_KEEPALIVE_S,
            tls_context=access.tls,
            **options,
        )
        client._client.manual_ack_set(on=True)  # noqa: SLF001 - paho's own way to it, before anything is received
        return client

    async def _subscribe(self, client: Client) -> None:
        wanted = self._wanted
        for topic in wanted.topics:
            if wanted.protocol == "5":
                # Kept messages only where the session is new: a reconnection is no reason to send them again.
                options = SubscribeOptions(qos=wanted.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
                granted = await client.subscribe(topic, options=options)
            else:
                granted = await client.subscribe(topic, qos=wanted.qos)
            code = granted[0].value if isinstance(granted[0], ReasonCode) else granted[0]
            if code >= 128:
                raise SourceRefuses(f"it does not let us read {topic}: correct --topic, or let this user read it")

    async def _read(self, client: Client, waiting: _Waiting, link: SourceConnection, window: Window) -> None:
        taken = dropped = 0
        async for first in client.messages:
            message: Message | None = first
            while message is not None:  # what waits beside it is there at once: aiomqtt makes a task for each
                await link.take(window, message.payload, _Told(client, message), message.topic.value)
                taken += 1
                if not taken % _BREATH:
                    await asyncio.sleep(0)
                message = None if waiting.empty() else waiting.get_nowait()
            if waiting.dropped > dropped:
                link.drop(waiting.dropped - dropped)
                dropped = waiting.dropped
            if waiting.overrun:
                raise SourceLost(f"it sent more than {_WAITING_BYTES_MAX >> 20} MiB that it had not heard of yet")


@dataclass(frozen=True, slots=True)
class _Told:
    """Tells the broker that a message is done with."""

    client: Client
    message: Message

    def __call__(self) -> None:
        if self.message.qos:
            self.client._client.ack(self.message.mid, self.message.qos)  # noqa: SLF001 - see the module


def _session(wanted: Subscription) -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho leaves it untyped
    properties.SessionExpiryInterval = wanted.session_s
    properties.ReceiveMaximum = WAITING_MAX
    properties.MaximumPacketSize = PAYLOAD_BYTES_MAX
    return properties


def _lost(error: MqttError) -> SourceLost:
    code = error.rc if isinstance(error, MqttCodeError) else None
    if isinstance(code, ReasonCode):
        said = _REFUSED.get(code.value)
        return SourceRefuses(said) if said else SourceLost(str(code).lower())
    # One that stood and ended: aiomqtt gives why as the cause.
    if isinstance(code, int) or isinstance(error.__cause__, MqttError):
        return SourceLost("the connection was closed")
    return lost(error)
