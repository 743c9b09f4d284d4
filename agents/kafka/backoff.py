"""Longer and longer waits before a broker that cannot be reached is dialled again.

aiokafka dials it ten times a second from every loop of a client, for as long as it is away, and has no setting like
Kafka's own `reconnect.backoff.max.ms`. As there, a try within the wait fails at once: whoever asks can turn to another
broker.
"""

from typing import Any

from aiokafka.client import AIOKafkaClient, ConnectionGroup

from hatcast.agents.clock import monotonic_s
from hatcast.agents.monitoring.failures import back_off_s


def back_off_reconnects(client: AIOKafkaClient) -> None:
    """Let a client of aiokafka wait before it dials a broker again that it could not reach."""
    _ReconnectBackoff(client)


class _ReconnectBackoff:
    """One client's brokers. It takes the place of the client's own way to a connection."""

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self._dial = client._get_conn  # noqa: SLF001 - there is no public way; it is pinned
        self._failed: dict[Any, int] = {}  # broker -> failures since it was last reached
        self._next_s: dict[Any, float] = {}  # broker -> when it may be dialled again
        client._get_conn = self._connection  # noqa: SLF001 - as above

    async def _connection(
        self, broker: Any, *, group: ConnectionGroup = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> Any:
        """What stands, or a new connection; None if there is none, or it is too early to try."""
        standing = self._client._conns.get((broker, group))  # noqa: SLF001 - as above
        if standing is not None and standing.connected():
            return standing
        if monotonic_s() < self._next_s.get(broker, 0.0):
            return None
        connection = await self._dial(broker, group=group, no_hint=no_hint)
        if connection is None:
            failed = self._failed[broker] = self._failed.get(broker, 0) + 1
            self._next_s[broker] = monotonic_s() + back_off_s(failed - 1)
        else:
            self._failed.pop(broker, None)
            self._next_s.pop(broker, None)
        return connection
