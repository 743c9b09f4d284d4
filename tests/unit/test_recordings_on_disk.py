"""Recordings as files: plain, gzip, several, pipes; and one clear line for each that cannot be read."""

import gzip
import os
import threading
from pathlib import Path

import pytest

from hatcast.agents.recordings.files import open_recording
from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import FORMATS, Format, Recorded, jsonl
from tests.services.data import DATA

SAMPLES = [(feed, path) for feed in FORMATS.values() for path in sorted((DATA / "feeds").glob(f"{feed.name}*"))]
every_sample = pytest.mark.parametrize(("feed", "path"), SAMPLES, ids=[path.name for _, path in SAMPLES])
UNREADABLE = Path("/proc/self/mem")
TEXT = b"".join(b'{"vehicle": "bus", "time": %d, "lat": 1, "lon": 2, "speed": 3}\n' % time for time in (30, 10, 20))


def read(*paths: Path, feed: Format = jsonl.FORMAT) -> list[tuple[int, Recorded]]:
    with open_recording(paths, feed) as recording:
        return list(recording)


def arrivals(*paths: Path) -> list[int]:
    return [arrival for arrival, _ in read(*paths)]


@every_sample
def test_plain_and_gzip_give_the_same_records(feed: Format, path: Path, tmp_path: Path) -> None:
    packed = tmp_path / "named_like_no_archive"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read(packed, feed=feed) == read(path, feed=feed) != []


def test_gzip_in_several_members_is_one_file(tmp_path: Path) -> None:
    packed = tmp_path / "file.gz"
    packed.write_bytes(gzip.compress(TEXT[:70]) + gzip.compress(TEXT[70:]))
    assert arrivals(packed) == [10, 20, 30]


def test_several_files_are_one_recording_in_arrival_order(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(TEXT + b"garbage\n")
    second.write_bytes(TEXT.replace(b"20", b"25"))
    found = read(first, second)
    assert [arrival for arrival, _ in found] == [10, 10, 20, 25, 30, 30, 30]
    assert found[5][1].raw == b"garbage"  # the greatest arrival before it; between the ties, as in the files


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(gzip.compress(TEXT),))
    writer.start()
    assert arrivals(pipe) == [10, 20, 30]
    writer.join()


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"absent: is missing; check the path$"):
        read(tmp_path / "absent")


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(TEXT)
    with pytest.raises(RecordingError, match=r"cannot be read \(Not a directory\); check the file"):
        read(tmp_path / "file" / "inner")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"is a directory; name the files in it$"):
        read(tmp_path)


@pytest.mark.parametrize("kept", [3, 12, 40, -1, -8])
def test_truncated_gzip_is_refused(tmp_path: Path, kept: int) -> None:
    packed = tmp_path / "file.gz"
    packed.write_bytes(gzip.compress(TEXT)[:kept])
    with pytest.raises(
        RecordingError, match=r"file\.gz: is cut off: its compressed stream has no end; fetch it again$"
    ):
        read(packed)


@pytest.mark.parametrize("place", [2, 12, 30, -6])
def test_damaged_gzip_is_refused(tmp_path: Path, place: int) -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[place] ^= 0xFF
    (tmp_path / "file.gz").write_bytes(packed)
    with pytest.raises(RecordingError, match=r"file\.gz: is not a valid compressed file; fetch it again"):
        read(tmp_path / "file.gz")


@pytest.mark.skipif(not UNREADABLE.exists(), reason="this system has no file that fails when it is read")
def test_a_file_that_fails_when_it_is_read_is_refused() -> None:
    with pytest.raises(
        RecordingError, match=r"^/proc/self/mem: cannot be read \(.*\); check the file and its permissions$"
    ):
        read(UNREADABLE)


@every_sample
def test_a_recording_named_as_another_format_is_refused_in_one_line(feed: Format, path: Path) -> None:
    for other in FORMATS.values():
        if (
            other.name.removesuffix("-in-service").split("-")[:2] != feed.name.split("-")[:2]
        ):  # gtfs-rt-label reads the same files as gtfs-rt
            with pytest.raises(RecordingError) as refusal:
                read(path, feed=other)
            assert "\n" not in str(refusal.value)


def test_an_empty_recording_has_no_ends(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with open_recording([tmp_path / "empty"], jsonl.FORMAT) as recording:
        assert (len(recording), recording.first_ms, recording.last_ms, list(recording)) == (0, None, None, [])
