"""Arrival order: unreadable arrivals, ties, and the same order however little memory there is."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.recording import BUFFERED_RECORDS, Recording, fill_arrivals

arrivals = st.lists(st.none() | st.integers(-5, 20))


def records(given_arrivals: list[int | None]) -> list[Recorded]:
    """One record an arrival, whose bytes are its place in the file."""
    return [Recorded(str(place).encode(), None, arrival) for place, arrival in enumerate(given_arrivals)]


def recording(given_arrivals: list[int | None], buffered_records: int = BUFFERED_RECORDS) -> Recording:
    return Recording(lambda: records(given_arrivals), "file", buffered_records)


def by_the_words(given_arrivals: list[int | None]) -> list[int]:
    """Return the arrival times by docs/specification/fold.md, Recordings, one record at a time."""
    found = []
    for place, arrival in enumerate(given_arrivals):
        before = [other for other in given_arrivals[:place] if other is not None]
        after = [other for other in given_arrivals[place:] if other is not None]
        found.append(arrival if arrival is not None else max(before) if before else after[0] if after else 0)
    return found


@given(arrivals)
def test_an_unreadable_arrival_is_the_greatest_before_it_else_the_first_after_it(
    given_arrivals: list[int | None],
) -> None:
    assert list(fill_arrivals(given_arrivals)) == by_the_words(given_arrivals)


def test_where_no_arrival_is_readable_all_are_zero() -> None:
    assert list(fill_arrivals([None, None])) == [0, 0]


@given(arrivals, st.integers(1, 9))
def test_records_come_in_arrival_order_and_ties_keep_the_order_of_the_file(
    given_arrivals: list[int | None], buffered_records: int
) -> None:
    expected = sorted(zip(by_the_words(given_arrivals), records(given_arrivals), strict=True), key=lambda pair: pair[0])
    assert list(recording(given_arrivals, buffered_records)) == expected
    assert list(recording(given_arrivals)) == expected


@given(arrivals)
def test_first_and_last_are_the_ends_of_the_recording(given_arrivals: list[int | None]) -> None:
    found = recording(given_arrivals)
    resolved = by_the_words(given_arrivals)
    assert len(found) == len(resolved)
    assert (found.first_ms, found.last_ms) == ((min(resolved), max(resolved)) if resolved else (None, None))


def test_a_recording_in_order_is_streamed() -> None:
    taken = 0

    def read() -> Iterator[Recorded]:
        nonlocal taken
        for record in records(list(range(1000))):
            taken += 1
            yield record

    found = iter(Recording(read, "file"))
    taken = 0
    next(found)
    assert taken == 1


def test_no_more_records_are_held_than_allowed() -> None:
    passes = 0

    def read() -> list[Recorded]:
        nonlocal passes
        passes += 1
        return records(list(range(100, 0, -1)))

    found = Recording(read, "file", buffered_records=25)
    assert [arrival for arrival, _ in found] == list(range(1, 101))
    assert passes == 1 + 4


@pytest.mark.parametrize("second", [[], [1, 2], [1, 2, 3, 4]])
@pytest.mark.parametrize("first", [[1, 2, 3], [3, 2, 1]])
def test_a_file_that_changes_while_it_is_read_is_refused(first: list[int | None], second: list[int | None]) -> None:
    versions = iter([records(first), records(second)])
    found = Recording(lambda: next(versions), "file")
    with pytest.raises(RecordingError, match=r"^file: changed while it was read"):
        list(found)
