"""Chunks of users: what is packed is what comes back, in the smallest of three codes.
Commands that hiredis packs are the bytes that redis-py sends.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio.connection import Connection
from redis.exceptions import DataError

from hatcast.agents.redis.connection import packed_by_hiredis
from hatcast.stream.fold.packing import Row, columns, pack, pack_day, unpack, unpack_day
from hatcast.stream.fold.seen_steps import _as_deltas, _as_runs, pack_seen, quick_seen, unpack_seen, varint

HOUR_S = 3600
pseudonyms = st.binary(min_size=8, max_size=8)
figures = st.integers(0, 2**64 - 1) | st.integers(0, 300)


def bits(steps: set[int]) -> int:
    return sum(1 << step for step in steps)


@st.composite
def seen_sets(draw: st.DrawFn) -> int:
    """Sets of steps: scattered, in runs, dense."""
    kind = draw(st.sampled_from(["scattered", "runs", "dense"]))
    if kind == "scattered":
        return bits(draw(st.sets(st.integers(0, 86_399), min_size=1, max_size=12)))
    if kind == "runs":
        spans = draw(st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 400)), min_size=1, max_size=6))
        return bits({step for start, length in spans for step in range(start, start + length)})
    return draw(st.integers(1, 2**400)) << draw(st.integers(0, 300))


rows = st.builds(Row, pseudonyms, figures, figures, figures, seen_sets())


@given(st.lists(rows, min_size=1, max_size=64))
def test_unpacking_gives_what_was_packed(given_rows: list[Row]) -> None:
    assert list(unpack(pack(given_rows))) == given_rows


signed_rows = st.builds(Row, pseudonyms, st.integers(0, 2**32), st.integers(0, 2**62), figures, seen_sets())


@given(st.lists(signed_rows, min_size=1, max_size=20))
def test_columns_are_the_same_rows_for_numpy(given_rows: list[Row]) -> None:
    users, counts, totals = columns(pack(given_rows))
    assert [int(user).to_bytes(8, "big") for user in users] == [row.pseudonym for row in given_rows]
    assert counts.tolist() == [row.count for row in given_rows]
    assert totals.tolist() == [row.total for row in given_rows]
    assert [column.dtype for column in (users, counts, totals)] == [np.dtype(name) for name in ("u8", "i8", "i8")]


@pytest.mark.parametrize("encode", [pack_seen, quick_seen])
@given(seen=seen_sets(), before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_a_set_of_steps_survives_whatever_stands_around_it(
    encode: Callable[[int], bytes], seen: int, before: bytes, after: bytes
) -> None:
    code = encode(seen)
    assert unpack_seen(before + code + after, len(before)) == (seen, len(before) + len(code))


@given(seen_sets())
def test_the_smallest_of_the_three_codes_is_taken(seen: int) -> None:
    first = (seen & -seen).bit_length() - 1
    cut = seen >> first
    codes = [
        b"".join(map(varint, _as_deltas(first, cut))),
        b"".join(map(varint, _as_runs(first, cut))),
        varint(first) + cut.to_bytes((cut.bit_length() + 7) // 8, "little"),
    ]
    least = min(map(len, codes))
    assert len(pack_seen(seen)) == len(varint(least << 2)) + least


@given(seen_sets())
def test_the_quick_code_takes_at_most_8_bytes_more_than_the_smallest(seen: int) -> None:
    assert len(quick_seen(seen)) <= len(pack_seen(seen)) + 8


def bytes_a_user(seconds_seen: list[set[int]], interval_s: int) -> float:
    """Of a chunk of 64 users who are at U = 65 km/h all the time."""
    steps = [{second // interval_s for second in seen} for seen in seconds_seen]
    made = [Row(bytes(8), len(each), 65_000 * len(each), 65_000, bits(each)) for each in steps]
    return len(pack(made)) / len(made)


@pytest.mark.parametrize("period_s", [1, 5, 10, 15, 20, 30, 60])
def test_a_bus_that_sends_regularly_for_50_minutes_takes_at_most_60_bytes_at_10_s(period_s: int) -> None:
    seen = [set(range(phase % period_s, HOUR_S * 5 // 6, period_s)) for phase in range(64)]
    assert bytes_a_user(seen, 10) <= 60


@pytest.mark.parametrize(("interval_s", "most"), [(10, 65), (1, 500)])
def test_no_pattern_of_an_hour_takes_more_than_its_bitmap_and_a_few_bytes(interval_s: int, most: int) -> None:
    chance = random.Random(1)
    for share in (0.3, 0.5, 0.7, 0.9):
        seen = [{second for second in range(HOUR_S) if chance.random() < share / interval_s} for _ in range(64)]
        assert bytes_a_user(seen, interval_s) <= most
    alternating = [set(range(0, HOUR_S, 2 * interval_s)) | {HOUR_S - 1}] * 64
    assert bytes_a_user(alternating, interval_s) <= most


def test_contributions_of_another_version_are_refused() -> None:
    chunk = b"\x63" + pack([Row(bytes(8), 1, 1, 1, 1)])[1:]
    for read in (lambda: list(unpack(chunk)), lambda: columns(chunk)):
        with pytest.raises(ValueError, match="version 99"):
            read()


def test_a_figure_over_64_bits_is_refused_and_never_cut() -> None:
    with pytest.raises(OverflowError):
        pack([Row(bytes(8), 1, 2**64, 1, 1)])


@given(st.lists(st.tuples(pseudonyms, st.integers(0, 65_535)), min_size=1, max_size=255))
def test_a_days_users_survive_packing(users: list[tuple[bytes, int]]) -> None:
    assert unpack_day(pack_day(users)) == users


def _view(data: bytes) -> memoryview:
    return memoryview(data)


NAMES = st.sampled_from(["GET", "SCRIPT LOAD", b"EVALSHA", b"CONFIG GET"])
ARGUMENTS = st.lists(
    st.one_of(
        st.text(),
        st.binary(),
        st.integers(),
        st.floats(),
        st.binary().map(_view),
        st.binary().map(bytearray),
    )
)


@given(NAMES, ARGUMENTS)
def test_a_command_is_packed_to_the_bytes_that_redis_py_sends(name: str | bytes, arguments: list[Any]) -> None:
    expected = b"".join(Connection().pack_command(name, *arguments))
    assert b"".join(packed_by_hiredis(Connection)().pack_command(name, *arguments)) == expected


@pytest.mark.parametrize("argument", [None, True, [1], {}])
def test_an_argument_that_redis_py_refuses_is_refused_in_its_words(argument: Any) -> None:
    with pytest.raises(DataError, match="Convert to a bytes, string, int or float first"):
        packed_by_hiredis(Connection)().pack_command("SET", "key", argument)
