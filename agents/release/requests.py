"""Requested speed limits of queries over days, as the releases of a worker use them.    [decisions/0014]"""

from collections.abc import Mapping

from hatcast.agents.clock import now_ms
from hatcast.agents.kafka.registry import Facts, Registry
from hatcast.agents.kafka.registry.requests import LimitRequest, read_request, request_key
from hatcast.stream.release.encoding import utc_text
from hatcast.stream.release.queries import QueryPeriod


class RequestedLimits:
    """Decides the speed limit of a period before its first answer is drawn, for good."""

    def __init__(self, policy: str, registry: Registry) -> None:
        """Args: `policy`, its name."""
        self._policy = policy
        self._registry = registry
        self._decided: dict[str, LimitRequest] = {}

    async def decide(self, period: QueryPeriod) -> QueryPeriod:
        """Return the period with its requested limit; without a request, close it to requests and return it unchanged.

        Raises KafkaError if the registry cannot be read or written, and HatcastError if its record cannot be decoded.
        """
        query = period.query
        if not query.on_request:
            return period
        key = request_key(self._policy, query.name, period.period.first.isoformat())
        limit = (self._decided.get(key) or await self._read_or_close(key)).speed_limit
        return period if limit is None else period.with_limit(limit)

    async def _read_or_close(self, key: str) -> LimitRequest:
        closed = LimitRequest(speed_limit=None, decided_at=utc_text(now_ms()))

        def decide(facts: Facts) -> Mapping[str, bytes]:
            return {} if key in facts.values else {key: closed.encoded()}

        decided = read_request((await self._registry.write(decide)).values, key)
        if decided is None:
            raise RuntimeError(f"the registry has not stored {key}")
        self._decided[key] = decided
        return decided
