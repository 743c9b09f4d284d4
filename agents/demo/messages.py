"""Messages between the demo and its feed process: one JSON object per line."""

import msgspec

from hatcast.agents.demo.embedded import Addresses
from hatcast.stream.readings.formats import FormatChoice


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Job of the feed: source, speed-up and target services. Without `files`, the synthetic city.

    config    path of a hatcast.toml whose [policy] is used; None: the demo's policy
    speedup   None: chosen to fit the recording; 0: as fast as possible
    hybrid    the policy has to take reports of devices
    share     share of the vehicles that trust the operator, if the policy takes reports
    """

    addresses: Addresses
    config: str | None = None
    files: tuple[str, ...] = ()
    format: FormatChoice | None = None
    speedup: float | None = None
    hybrid: bool = False
    share: float = 1.0


class Began(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The feed has opened its source and starts to send.

    records             number of records; None: endless
    first_ms, last_ms   ms UTC of the first and last arrival; None: unknown
    trusting, devices   number of vehicles that send readings, and of those with devices; None: all send readings
    """

    records: int | None
    first_ms: int
    last_ms: int | None
    speedup: float
    trusting: int | None = None
    devices: int | None = None


class Note(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A sentence for the user."""

    text: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The feed has sent everything, and Kafka has acknowledged it.

    sent                  records without heartbeats, with `undecodable` ones
    arrived_in_future     records that were not sent: they arrive later than now
    arrived_before_1970   records that were not sent
    """

    sent: int
    undecodable: int
    arrived_in_future: int
    arrived_before_1970: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The feed has failed; `text` is the error line for the user."""

    text: str


FeedMessage = Began | Note | Ended | Failed
