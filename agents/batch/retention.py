"""Retention: data saved from a fold before its closed slots are dropped; none, totals, or all that releases need."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol, TypeVar

from hatcast.agents.batch.ledger_users import Entered
from hatcast.stream.fold.checkpoint import take_changes, totals
from hatcast.stream.fold.packing import strip, unpack
from hatcast.stream.fold.partition_fold import PartitionFold
from hatcast.stream.fold.seen_steps import pack_seen
from hatcast.stream.hybrid.report_fold import ReportFold
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.hats import HatChunks

V = TypeVar("V")

_DIGEST_BYTES: Final = 8  # enough to detect a change; not meant to resist an attacker

Totals = tuple[int, int, int, int]  # users, readings, sum and max in milli-units


class Retention(Protocol):
    """Saves data of a fold, repeatedly and once more at its end."""

    def retain(self, fold: PartitionFold[V], partition: int, *, ended: bool) -> None:
        """Save the data that is needed later: closed slots are dropped afterwards."""


class RetainNothing:
    """Retention for outcomes alone."""

    def retain(self, fold: PartitionFold[V], partition: int, *, ended: bool) -> None:
        """Save nothing."""


class RetainTotals:
    """Retention for `--contributions`. Not private."""

    def __init__(self) -> None:
        self.hats: dict[str, Totals] = {}  # `cell/date/slot` -> totals over all partitions

    def retain(self, fold: PartitionFold[V], partition: int, *, ended: bool) -> None:
        """Add each slot once: when it closes, or at the end. Reports are skipped, because they are not readings."""
        if isinstance(fold, ReportFold):
            return
        watermark = -1 if fold.watermark is None else fold.watermark
        closing = [slot for slot in fold.slots.values() if ended or watermark >= slot.closes_ms]
        for key, (users, count, total, maximum) in totals(closing).items():
            known = self.hats.get(key, (0, 0, 0, 0))
            self.hats[key] = (known[0] + users, known[1] + count, known[2] + total, max(known[3], maximum))


def in_unit(totals: Totals, policy: Policy) -> Totals:
    """Return totals of distances from the value's lower bound as totals of values, in milli-units."""
    users, count, total, maximum = totals
    return users, count, total + count * policy.lower, maximum + policy.lower


@dataclass(frozen=True, slots=True, order=True)
class RetainedHat:
    """A HAT; the order is that of release, by slot, then cell."""

    end_ms: int  # of its slot
    slot: str  # `date/slot`
    cell: str

    @property
    def date(self) -> str:
        """The local date whose budget the HAT is charged to."""
        return self.slot.partition("/")[0]

    @property
    def place(self) -> str:
        """`cell/slot`, by which a day's charges are summed."""
        return f"{self.cell}/{self.slot.partition('/')[2]}"


class RetainChunks:
    """Retention for `--ledger`: the chunks that a worker's checkpoints write to Redis, in the same packing.

    At the end of the fold all HATs of the files are in memory. Then memory shrinks: a released HAT is stripped for the
    queries over days that read it, or dropped.
    """

    def __init__(self) -> None:
        self._hats: dict[RetainedHat, dict[tuple[int, int], bytes]] = {}
        self._reports: dict[RetainedHat, dict[tuple[int, int], bytes]] = {}
        # slot (`date/slot`) -> cell -> stripped chunks of its closed HATs with readings
        self.stripped: dict[str, dict[str, bytes]] = {}

    def retain(self, fold: PartitionFold[V], partition: int, *, ended: bool) -> None:
        """Save the chunks that changed since the last call; they are absolute, so they replace earlier ones."""
        del ended
        changes = take_changes(fold)
        hats = self._reports if isinstance(fold, ReportFold) else self._hats
        for (slot, cell, chunk), packed in changes.chunks.items():
            hat = RetainedHat(changes.slots[slot], slot, cell)
            hats.setdefault(hat, {})[partition, chunk] = packed

    def hats(self) -> list[RetainedHat]:
        """Return the HATs with readings or reports, in the order of release."""
        return sorted(self._hats.keys() | self._reports.keys())

    def chunks(self, hat: RetainedHat) -> HatChunks:
        """Return the chunks of a HAT from all partitions; empty for a HAT without users."""
        return HatChunks(*(list(chunks.get(hat, {}).values()) for chunks in (self._hats, self._reports)))

    def entered(self, hat: RetainedHat, key: bytes) -> Entered:
        """Return the users of a HAT. `key`: of the digest, so that times cannot be guessed from it."""
        readings, reports = (
            sorted((row.pseudonym, row.seen) for chunk in chunks.get(hat, {}).values() for row in unpack(chunk))
            for chunks in (self._hats, self._reports)
        )
        digest = blake2b(len(readings).to_bytes(8, "big"), digest_size=_DIGEST_BYTES, key=key)
        for pseudonym, seen in (*readings, *reports):
            digest.update(pseudonym + pack_seen(seen))
        vehicles, devices = (b"".join([pseudonym for pseudonym, _ in rows]) for rows in (readings, reports))
        return Entered(vehicles, devices, digest.digest())

    def close(self, hat: RetainedHat, *, strips: bool) -> None:
        """Drop the contributions of a HAT that has its record; if `strips`, retain the parts that queries read."""
        self._reports.pop(hat, None)
        chunks = self._hats.pop(hat, None)
        if chunks is not None and strips:
            self.stripped.setdefault(hat.slot, {})[hat.cell] = b"".join(map(strip, chunks.values()))
