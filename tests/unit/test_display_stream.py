"""The stream of changes: shared bytes, ids that hold across restarts, and nobody who misses anything."""

import zlib
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hatcast.agents.map import feed as feed_module
from hatcast.agents.map.events import (
    GZIP_HEADER,
    MAX_QUEUED_CHUNKS,
    EventBatch,
    EventChunk,
    EventPosition,
    Hub,
    event,
    parse_position,
)
from hatcast.agents.map.record import RecordKind
from tests.displaying import CELLS, budget, estimate, feed, publish, release, running
from tests.viewing import Page

offsets = st.lists(st.integers(0, 10**18 - 1), min_size=1, max_size=20)


@given(st.lists(st.binary(max_size=300)))
def test_compressed_chunks_may_be_strung_together_in_any_order(parts: list[bytes]) -> None:
    unpack = zlib.decompressobj(31)
    got = unpack.decompress(GZIP_HEADER)
    for part in parts:
        got += unpack.decompress(EventChunk([part]).packed)
        assert got.endswith(part), "a piece is whole when its last byte is there"
    assert got == b"".join(parts)


def test_a_record_in_several_lines_is_one_event() -> None:
    assert event("release", b'{\n "a": 1\r\n}', "x") == b'id: x\nevent: release\ndata: {  "a": 1  }\n\n'


@given(offsets, offsets, st.just([]) | offsets, st.just([]) | offsets)
def test_an_id_is_read_as_it_was_written(
    means: list[int], budgets: list[int], estimates: list[int], running: list[int]
) -> None:
    position = EventPosition("00ff00ff", means, budgets, estimates, running)
    assert parse_position(str(position)) == position


@pytest.mark.parametrize("text", ["", "x", "00ff00ff", "00ff00ff-1-", "00ff00ff-1.-2", "00FF00FF-1-2", "0" * 9_000])
def test_what_is_no_id_is_none(text: str) -> None:
    assert parse_position(text) is None


def records(hours: int) -> list[bytes]:
    made = [
        release(hour, cell, f"{20 + hour % 7}.{100 + at}") for hour in range(hours) for at, cell in enumerate(CELLS)
    ]
    estimates = [estimate(hour, cell) for hour in range(hours) for cell in CELLS[:2]]
    means = [running(hour, cell, name) for hour in range(hours) for cell in CELLS[:2] for name in ("24h", "today")]
    return [*made, *estimates, *means, budget(seq=hours)]


def stream_to(page: Page, made: feed_module.Feed) -> None:
    """What one who has seen that much is sent first."""
    page.take(made.initial_chunk(None, parse_position(page.seen)).plain)


@example([0, 25])  # a day's first slot comes and goes within one batch
@settings(max_examples=20)
@given(st.lists(st.integers(0, 28), min_size=1, max_size=4).map(sorted))
def test_one_who_comes_back_knows_in_the_end_what_one_who_stayed_knows(hours: list[int]) -> None:
    """Away between any two batches, and meanwhile the server is another one: the topic is read anew each time."""
    away = Page()
    for upto in hours:
        stream_to(away, feed(records(upto)))
    stayed = Page()
    made = feed()
    stream_to(stayed, made)
    with made.hub.viewer() as viewer:
        for before, now in pairwise([[], *map(records, hours)]):
            publish(made, [each for each in now if each not in before])
        while viewer._queue.qsize():
            stayed.take(viewer._queue.get_nowait().plain)
    # One who begins is sent the latest slot, and asks for earlier ones.
    first = feed(records(hours[0])).policy(RecordKind.RELEASES, "city")
    latest = first.latest() if first else None

    def expected(of: dict[str, bytes]) -> dict[str, bytes]:
        return {each: text for each, text in of.items() if not (latest and each.split("/")[1] < latest.slot)}

    assert away.releases == expected(stayed.releases)
    assert away.estimates == expected(stayed.estimates)
    assert (away.slots, away.budgets, away.running) == (stayed.slots, stayed.budgets, stayed.running)
    assert away.resets == 1


def test_one_who_has_seen_another_log_starts_anew() -> None:
    made = feed(records(3))
    for seen in ("ffffffff-1.1-0", f"{made.position.log}-9999.0-0", f"{made.position.log}-0-0", "nonsense"):
        page = Page()
        page.seen = seen
        stream_to(page, made)
        assert page.resets == 1
        assert page.seen == str(made.position)


def test_one_who_missed_too_much_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "MAX_MISSED", 7)
    made, page = feed(records(1)), Page()
    stream_to(page, made)
    publish(made, records(3)[4:])
    stream_to(page, made)
    assert page.resets == 2


def test_one_who_leaves_within_the_snapshot_has_no_id_and_starts_anew() -> None:
    text = feed(records(3)).initial_chunk(None, None).plain
    page = Page()
    page.take(text[: text.rindex(b"id: ")])
    assert page.seen == ""


def test_what_all_are_sent_is_made_and_compressed_once() -> None:
    made = feed(records(3))
    assert made.initial_chunk(None, None) is made.initial_chunk(None, None)
    with made.hub.viewer() as one, made.hub.viewer() as other:
        publish(made, [release(9)])
        assert one._queue.get_nowait() is other._queue.get_nowait()


def test_one_who_does_not_keep_up_is_let_go_and_the_others_are_not() -> None:
    hub = Hub()
    with hub.viewer() as slow, hub.viewer() as quick:
        for _ in range(MAX_QUEUED_CHUNKS + 1):
            hub.send(EventBatch([(None, b"x")]))
            quick._queue.get_nowait()
        assert len(hub) == 1
        assert slow._queue.qsize() == MAX_QUEUED_CHUNKS
        assert quick.offer(EventChunk([b"y"]))


def test_a_quiet_hour_tells_that_the_line_stands() -> None:
    made = feed()
    with made.hub.viewer() as viewer:
        made.send_keepalive()
        text = viewer._queue.get_nowait().plain
        assert text.startswith(b'event: alive\ndata: {"policy": "city"}\n\nevent: status\ndata: {"live":true,')
