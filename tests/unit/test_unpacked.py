"""Columns of a fetch response are those of the records that aiokafka itself would return."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from hatcast.agents.kafka.batches.fetched import Unpacker

Row = tuple[int, int, bytes | None]  # offset, timestamp, value

TP: Final = TopicPartition("telemetry", 3)
PRODUCERS: Final = (7, 8)
CHECK_CRCS: Final = True
ABORT, COMMIT = 0, 1
_CONTROL: Final = 0x20
_ATTRIBUTES: Final = 21  # of a batch, followed by the offset of its last record; the checksum covers all from here on


class Sent(NamedTuple):
    """A batch: its values, its codec, its producer, whether it is in a transaction, and offsets compacted away."""

    values: Sequence[bytes | None] = (b"a", b"b", b"c")
    codec: int = 0
    producer: int = -1
    transactional: bool = False
    marker: int | None = None
    missing_first: int = 0
    missing_last: int = 0
    headers: Sequence[tuple[str, bytes]] = ()

    def at(self, base: int) -> tuple[bytes, int]:
        """Return the batch at an offset, and the offset behind it."""
        builder = DefaultRecordBatchBuilder(2, self.codec, self.transactional, self.producer, 0, 0, 1 << 20)
        values = self.values if self.marker is None else [b"\0" * 6]
        key = b"bus" if self.marker is None else struct.pack(">hh", 0, self.marker)
        for at, value in enumerate(values, start=self.missing_first):
            builder.append(at, timestamp=1_000 + base + at, key=key, value=value, headers=list(self.headers))
        last = self.missing_first + len(values) - 1 + self.missing_last
        extra = _CONTROL if self.marker is not None else 0
        return stamped(bytearray(builder.build()), base, last, extra), base + last + 1


def stamped(built: bytearray, base: int, last: int, extra: int) -> bytes:
    """A batch at an offset, with its last record's place and further attributes."""
    attributes = struct.unpack_from(">h", built, _ATTRIBUTES)[0] | extra
    struct.pack_into(">hi", built, _ATTRIBUTES, attributes, last)
    struct.pack_into(">I", built, _ATTRIBUTES - 4, calc_crc32c(bytes(built[_ATTRIBUTES:])))
    struct.pack_into(">q", built, 0, base)
    return bytes(built)


def fetch(sent: Sequence[Sent], position: int, aborted: Sequence[tuple[int, int]] = ()) -> PartitionRecords:
    log, at = b"", 0
    for batch in sent:
        data, at = batch.at(at)
        log += data
    return PartitionRecords(TP, MemoryRecords(log), list(aborted), position, None, None, CHECK_CRCS, READ_COMMITTED)


def as_aiokafka(fetched: PartitionRecords) -> tuple[list[Row], int]:
    return [(each.offset, each.timestamp, each.value) for each in fetched], fetched.next_fetch_offset


def unpacked(fetched: PartitionRecords, most: int) -> tuple[list[Row], int]:
    rows: list[Row] = []
    base = fetched.next_fetch_offset
    for columns in Unpacker(fetched, most):
        rows += zip(columns.offsets, columns.timestamps, columns.values, strict=True)
        assert len(columns.values) <= most
        assert all(offset < columns.next for offset, _, _ in rows)
        assert columns.base == base
        assert columns.next == fetched.next_fetch_offset
        base = columns.next
    return rows, fetched.next_fetch_offset


def holes(fetched: PartitionRecords, most: int) -> list[tuple[int, int]]:
    """The offsets that columns call lost: from where each begins to its first record, or to its end."""
    found, begin = [], fetched.next_fetch_offset
    for columns in Unpacker(fetched, most):
        if columns.lost:
            found.append((begin, columns.offsets[0] if columns.offsets else columns.next))
        begin = columns.next
    return found


def _data(
    values: Sequence[bytes | None], codec: int, first: int, last: int, headers: Sequence[tuple[str, bytes]]
) -> Sent:
    return Sent(values, codec, missing_first=first, missing_last=last, headers=headers)


data = st.tuples(
    st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=4),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from([(), (("trace", b"1"), ("trace", b"2"))]),
).map(lambda drawn: _data(*drawn))
in_transaction = st.sampled_from(
    [Sent([b"t"], producer=each, transactional=inside) for each in PRODUCERS for inside in (False, True)]
)
markers = st.sampled_from(
    [Sent(producer=each, transactional=True, marker=kind) for each in PRODUCERS for kind in (ABORT, COMMIT)]
)


@given(
    sent=st.lists(data | in_transaction | markers, max_size=8),
    aborted=st.lists(st.tuples(st.sampled_from(PRODUCERS), st.integers(0, 20)), max_size=3),
    position=st.integers(0, 12),
    most=st.integers(1, 7),
)
def test_columns_have_the_records_and_the_next_offset_of_aiokafka(
    sent: list[Sent], aborted: list[tuple[int, int]], position: int, most: int
) -> None:
    wanted = as_aiokafka(fetch(sent, position, aborted))
    assert unpacked(fetch(sent, position, aborted), most) == wanted


def test_an_aborted_transaction_is_left_out_and_crossed() -> None:
    sent = [
        Sent([b"t"], producer=7, transactional=True),
        Sent([b"x"]),
        Sent(producer=7, transactional=True, marker=ABORT),
    ]
    assert unpacked(fetch(sent, 0, [(7, 0)]), 10) == ([(1, 1_001, b"x")], 3)
    assert unpacked(fetch(sent, 0), 10) == ([(0, 1_000, b"t"), (1, 1_001, b"x")], 3)


def test_a_producer_counts_again_after_the_marker_of_its_aborted_transaction() -> None:
    aborted = [Sent([b"t"], producer=7, transactional=True), Sent(producer=7, transactional=True, marker=ABORT)]
    committed = [Sent([b"u"], producer=7, transactional=True), Sent(producer=7, transactional=True, marker=COMMIT)]
    assert unpacked(fetch(aborted + committed, 0, [(7, 0)]), 10) == ([(2, 1_002, b"u")], 4)


def test_markers_and_aborted_records_are_no_hole() -> None:
    aborted = [Sent([b"t", b"t"], producer=7, transactional=True), Sent([b"x"]), Sent([b"t"], 0, 7, transactional=True)]
    marker = Sent(producer=7, transactional=True, marker=ABORT)
    committed = [Sent([b"u"], producer=8, transactional=True), Sent(producer=8, transactional=True, marker=COMMIT)]
    for most in range(1, 7):
        assert holes(fetch([*aborted, marker, *committed, Sent()], 0, [(7, 0)]), most) == []


@given(
    kept=st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=5),
    gone=st.sets(st.integers(0, 4)),
    kind=st.sampled_from(["plain", "aborted", "committed"]),
    position=st.integers(0, 6),
    most=st.integers(1, 7),
)
def test_the_holes_are_what_compaction_removed(
    kept: list[list[bool]], gone: set[int], kind: str, position: int, most: int
) -> None:
    """Compaction removes records of batches, and whole batches; a batch that is left has its old offsets."""
    log, at = b"", 0
    removed: list[int] = []
    crossed: set[int] = set()
    aborted = [(7, 0)] if kind == "aborted" else []
    for number, batch in enumerate([*kept, [True]]):  # of a log the last record is never removed
        inside = kind != "plain" and number % 2 == 0 and number < len(kept)
        is_gone = number in gone and number < len(kept)
        if at + len(batch) <= position:
            pass  # a broker begins with the batch of the position
        elif is_gone or not any(batch):
            removed += range(at, at + len(batch))
        else:
            log += Compacted(batch, 7 if inside else -1).at(at)
            if inside and kind == "aborted":
                crossed |= {*range(at, at + len(batch))}
            else:
                removed += [at + place for place, is_kept in enumerate(batch) if not is_kept]
        at += len(batch)
    fetched = PartitionRecords(TP, MemoryRecords(log), aborted, position, None, None, CHECK_CRCS, READ_COMMITTED)
    found = {offset for begin, end in holes(fetched, most) for offset in range(begin, end)}
    assert found - crossed == {offset for offset in removed if offset >= position}


class Compacted(NamedTuple):
    """A batch of which some records are left, of a transaction or not."""

    kept: Sequence[bool]
    producer: int

    def at(self, base: int) -> bytes:
        builder = DefaultRecordBatchBuilder(2, 0, self.producer >= 0, self.producer, 0, 0, 1 << 20)
        for place, is_kept in enumerate(self.kept):
            if is_kept:
                builder.append(place, timestamp=1_000, key=b"bus", value=b"v", headers=[])
        return stamped(bytearray(builder.build()), base, len(self.kept) - 1, 0)


def test_a_batch_with_a_wrong_checksum_is_an_error_and_none_of_its_records_are_returned() -> None:
    log = bytearray(Sent().at(0)[0])
    log[-1] ^= 1
    fetched = PartitionRecords(TP, MemoryRecords(bytes(log)), [], 0, None, None, CHECK_CRCS, READ_COMMITTED)
    with pytest.raises(CorruptRecordException):
        next(Unpacker(fetched, 10))
    assert fetched.next_fetch_offset == 0
