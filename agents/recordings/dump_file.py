"""Read the output of `hatcast dump`: a topic's records, which `hatcast batch --format kafka` folds.

{"topic": "telemetry", "partitions": 8, "start_offsets": [0, 0, ..]}
{"topic": "telemetry", "partition": 3, "offset": 17, "ts": 1641081583000, "key": "R0o=", "value": "eyJ2.."}

A dump may consist of several files: each starts with the header, and offsets keep increasing.
"""

from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec

from hatcast.agents.kafka.dump import DumpHead, DumpLine
from hatcast.stream.errors import UNREADABLE, RecordingError
from hatcast.stream.readings.formats import Format, Recorded
from hatcast.stream.readings.recording import Recording


def _lines(stream: BinaryIO, path: str) -> Iterator[Recorded]:
    """Yield a dump's lines unparsed. They carry no arrival time, so all tie and stay in file order."""
    del path
    for line in stream:
        if not line.isspace():
            yield Recorded(line, None, None)


# For hatcast.agents.recordings.files, which opens plain files, gzip and pipes, and raises RecordingError.
DUMP: Final = Format("kafka", lambda _: None, _lines)

_read_head: Final = msgspec.json.Decoder(DumpHead).decode
_read_line: Final = msgspec.json.Decoder(DumpLine).decode
_FIX: Final = "give the output of `hatcast dump`"


class Dump:
    """The checked records of a dump: one topic, partitions of the header, increasing offsets.

    Raises RecordingError: on construction if the first line is not a header, else during iteration.
    """

    def __init__(self, recording: Recording, name: str) -> None:
        self._recording = recording
        self._name = name
        first = next(iter(recording), None)
        if first is None:
            raise RecordingError(name, "is empty", _FIX)
        self.head = self._head(first[1].raw, 1)

    def __len__(self) -> int:
        """Return the number of lines, including headers."""
        return len(self._recording)

    def __iter__(self) -> Iterator[DumpLine]:
        head = self.head
        following = list(head.start_offsets)
        for number, (_, recorded) in enumerate(self._recording, start=1):
            try:
                line = _read_line(recorded.raw)
            except UNREADABLE:
                if self._head(recorded.raw, number) != head:
                    raise self._error(number, "is the header of another dump", "give parts of one dump") from None
                continue
            if line.topic != head.topic or not 0 <= line.partition < head.partitions:
                raise self._error(number, "is of a topic or partition that the header does not name", _FIX)
            if line.offset < following[line.partition]:
                raise self._error(number, f"has offset {line.offset}, which does not increase in its partition", _FIX)
            following[line.partition] = line.offset + 1
            yield line

    def _head(self, raw: bytes, number: int) -> DumpHead:
        try:
            head = _read_head(raw)
        except UNREADABLE:
            raise self._error(number, "is not a line of a dump", _FIX) from None
        if head.partitions < 1 or len(head.start_offsets) != head.partitions:
            raise self._error(number, "does not have one start offset for each partition", _FIX)
        return head

    def _error(self, number: int, problem: str, fix: str) -> RecordingError:
        return RecordingError(self._name, f"line {number} {problem}", fix)
