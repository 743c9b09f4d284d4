"""Laws of every feed in FORMATS: on any bytes a reading or nothing, and a reading that replay can send."""

import io
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hatcast.stream.readings.formats
from hatcast.agents.recordings.files import recognised
from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import FORMATS, Format, FormatChoice, Recorded, jsonl
from hatcast.stream.readings.reading import Reading, is_complete, number, parse_time, to_milli
from tests.services.data import DATA

SAMPLES = DATA / "feeds"
BROKEN = sorted((SAMPLES / "broken").iterdir())
every_feed = pytest.mark.parametrize("feed", FORMATS.values(), ids=attrgetter("name"))
every_whole_feed = pytest.mark.parametrize(
    "feed", [feed for feed in FORMATS.values() if feed.counts is None], ids=attrgetter("name")
)


def family(feed: Format) -> str:
    """The name of a feed without that of the field which has the vehicle's id, and of those in service."""
    return feed.name.removesuffix("-in-service").removesuffix("-plate").removesuffix("-label")


def samples(feed: Format) -> list[Path]:
    """The feed's recordings: tests/data/feeds/<name>*."""
    return sorted(SAMPLES.glob(f"{family(feed)}*"))


def recorded_in(path: Path, feed: Format) -> list[Recorded]:
    with path.open("rb") as stream:
        return list(feed.records(stream, path.name))


RECORDS = sorted(
    {record.raw for feed in FORMATS.values() for path in samples(feed) for record in recorded_in(path, feed)}
)


MESSAGES = sorted({path.read_bytes() for feed in FORMATS.values() for path in samples(feed)})


@st.composite
def mutated_records(draw: st.DrawFn, originals: Sequence[bytes] = RECORDS) -> bytes:
    """A record of any feed with up to four slices cut out, replaced or repeated."""
    value = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(value)))
        end = draw(st.integers(start, min(len(value), start + 12)))
        value = value[:start] + draw(st.binary(max_size=4) | st.just(value[start:end] * 2)) + value[end:]
    return value


# Milli-units of km/h of the first reading in each feed's samples, from the unit that its city documents.
FIRST_MILLI = {"jsonl": 31_500, "itms": 38_000, "capmetro": 62_764, "gtfs-rt": 33_480, "hfp": 19_800, "siri": 32_400}


@pytest.mark.parametrize("name", FIRST_MILLI)
def test_a_recording_of_each_format_is_recognised_whatever_its_name_is(name: str, tmp_path: Path) -> None:
    for sample in samples(FORMATS[name]):
        (tmp_path / "day").write_bytes(sample.read_bytes())
        assert recognised([tmp_path / "day"]) == FormatChoice(name), sample.name


messages = st.binary() | mutated_records() | mutated_records(MESSAGES) | st.lists(mutated_records()).map(b"\n".join)
texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["nan", "inf", "-inf"])
times = texts | st.integers() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
readings = st.builds(Reading, texts, times, numbers, numbers, numbers, st.sampled_from(["km/h", "m/s", "mph", "kn"]))


def is_reading_or_nothing(decode: Callable[[bytes], object], value: bytes) -> bool:
    found = decode(value)
    return found is None or (type(found) is Reading and is_complete(found))


def survives(reading: Reading, write: Callable[[Recorded], bytes]) -> bool:
    return jsonl.decode(write(Recorded(b"", reading, None))) == reading


def test_every_feed_file_is_in_the_suite() -> None:
    folder = Path(hatcast.stream.readings.formats.__file__).parent
    files = {path.stem.replace("_", "-") for path in folder.glob("[!_]*.py")} - {"interface"}
    assert {family(feed) for feed in FORMATS.values()} == files


@every_whole_feed
def test_every_feed_has_a_sample_with_good_and_bad_records(feed: Format) -> None:
    assert samples(feed)
    for path in samples(feed):
        assert {record.reading is None for record in recorded_in(path, feed)} == {True, False}, path.name


@every_feed
@given(value=st.binary())
def test_decoding_any_bytes_gives_a_reading_or_nothing(feed: Format, value: bytes) -> None:
    assert is_reading_or_nothing(feed.decode, value)


@every_feed
@given(value=mutated_records())
def test_decoding_a_damaged_record_gives_a_reading_or_nothing(feed: Format, value: bytes) -> None:
    assert is_reading_or_nothing(feed.decode, value)


@every_whole_feed
def test_the_speeds_of_a_feed_end_in_the_unit_of_the_policy(feed: Format) -> None:
    for path in samples(feed):
        first = next(record.reading for record in recorded_in(path, feed) if record.reading is not None)
        assert to_milli(number(first.speed), first.unit) == FIRST_MILLI[family(feed)], path.name


IN_SERVICE = [feed for feed in FORMATS.values() if feed.counts is not None]


@pytest.mark.parametrize("feed", IN_SERVICE, ids=attrgetter("name"))
def test_a_format_in_service_reads_what_its_own_record_says_and_nothing_else(feed: Format) -> None:
    whole = FORMATS[feed.name.removesuffix("-in-service")]
    for path in samples(feed):
        both = zip(recorded_in(path, feed), recorded_in(path, whole), strict=True)
        for one, other in both:
            on_trip = feed.counts is not None and feed.counts(other.raw)
            assert one.reading == (other.reading if on_trip else None), path.name
            assert feed.decode(other.raw) == (whole.decode(other.raw) if on_trip else None)
            if other.reading is not None and not on_trip:
                assert one.problem == "is of a vehicle without a trip or journey"


def test_a_decoder_that_lets_an_unknown_unit_through_breaks_the_law() -> None:
    def mutant(value: bytes) -> object:
        return Reading("bus", 0, 1.0, 2.0, 3.0, "furlong")

    assert not is_reading_or_nothing(mutant, b"{}")


@every_feed
@given(value=messages, topic=texts)
def test_splitting_any_message_gives_records_none_of_which_is_a_tick(feed: Format, value: bytes, topic: str) -> None:
    for record in feed.split(value) + feed.split(value, topic):
        assert type(record) is bytes
        assert record
        assert is_reading_or_nothing(feed.decode, record)


@every_feed
def test_a_message_of_one_record_is_that_record(feed: Format) -> None:
    for path in samples(feed):
        for record in recorded_in(path, feed):
            assert feed.split(record.raw) == [record.raw]


@every_feed
def test_a_recording_sent_as_one_message_is_its_records(feed: Format) -> None:
    for path in samples(feed):
        header = path.suffix == ".csv"
        if not (header and feed is FORMATS["itms"]):  # only a recording may be CSV
            assert feed.split(path.read_bytes())[header:] == [record.raw for record in recorded_in(path, feed)]


@every_feed
@given(value=messages)
def test_reading_any_bytes_as_a_recording_gives_records_or_one_refusal(feed: Format, value: bytes) -> None:
    try:
        records = list(feed.records(io.BytesIO(value), "file"))
    except RecordingError as refusal:
        assert "\n" not in str(refusal)
        return
    for record in records:
        assert record.raw
        assert record.reading is None or is_complete(record.reading)


@every_feed
@pytest.mark.parametrize("path", BROKEN, ids=attrgetter("name"))
def test_a_broken_message_gives_records_none_of_which_is_a_tick(feed: Format, path: Path) -> None:
    for record in feed.split(path.read_bytes()) + feed.split(path.read_bytes(), "/hfp/v2/a/b/c/d/1/2"):
        assert record
        assert is_reading_or_nothing(feed.decode, record)


@every_feed
@pytest.mark.parametrize("path", BROKEN, ids=attrgetter("name"))
def test_a_broken_file_gives_records_or_one_refusal(feed: Format, path: Path) -> None:
    try:
        records = recorded_in(path, feed)
    except RecordingError as refusal:
        assert str(refusal).startswith(f"{path.name}: ")
        assert "\n" not in str(refusal)
        return
    assert all(record.raw for record in records)


@every_feed
def test_the_recordings_of_other_feeds_are_refused(feed: Format) -> None:
    for path in chain.from_iterable(samples(other) for other in FORMATS.values() if family(other) != family(feed)):
        with pytest.raises(RecordingError):
            recorded_in(path, feed)


@every_feed
def test_what_a_feed_read_decodes_again_from_the_canonical_record(feed: Format) -> None:
    for path in samples(feed):
        for record in recorded_in(path, feed):
            if record.reading is None:
                assert jsonl.canonical_value(record) == record.raw
            else:
                assert survives(record.reading, jsonl.canonical_value)


@given(readings)
def test_any_reading_survives_the_canonical_record(reading: Reading) -> None:
    assert survives(reading, jsonl.canonical_value)


def test_a_canonical_record_that_drops_digits_or_the_unit_breaks_the_law() -> None:
    def rounded(record: Recorded) -> bytes:
        assert record.reading is not None
        return jsonl.canonical_value(record).replace(b"0.1234567890123", b"0.123457")

    def without_unit(record: Recorded) -> bytes:
        return jsonl.canonical_value(record).replace(b',"unit":"m/s"', b"")

    reading = Reading("bus", "now", 0.1234567890123, 2.0, 3.0, "m/s")
    assert survives(reading, jsonl.canonical_value)
    assert not survives(reading, rounded)
    assert not survives(reading, without_unit)


@every_feed
def test_an_arrival_that_is_not_of_its_own_field_is_the_time_of_the_record(feed: Format) -> None:
    if family(feed) in ("gtfs-rt", "siri"):
        return  # the time of the poll or delivery
    for path in samples(feed):
        for record in recorded_in(path, feed):
            if record.reading is not None and b'"arrival"' not in record.raw:
                assert record.arrival == parse_time(record.reading.time)
