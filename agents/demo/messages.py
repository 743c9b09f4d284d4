"""What the demo and its feed, two processes, tell each other: one JSON object a line."""

import msgspec

from hatcast.agents.demo.embedded import Addresses


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What to feed where. Without `file`, the synthetic city.

    config    a hatcast.toml whose [policy] is used; None: the demo's own policy
    speedup   None: a choice that fits the recording; 0: as fast as it goes
    """

    addresses: Addresses
    config: str | None = None
    file: str | None = None
    format: str | None = None
    speedup: float | None = None


class Began(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The feed has read what it is going to send.

    records             None: without end
    first_ms, last_ms   ms UTC of the arrivals; None where nobody knows
    """

    records: int | None
    first_ms: int
    last_ms: int | None
    speedup: float


class Note(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A sentence for people."""

    text: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All was sent, and Kafka has it.

    sent                  records without ticks, `undecodable` ones included
    arrived_in_future     not sent: later than now
    arrived_before_1970   not sent
    """

    sent: int
    undecodable: int
    arrived_in_future: int
    arrived_before_1970: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The feed does not go on: the line that a person reads."""

    text: str


Told = Began | Note | Ended | Failed
