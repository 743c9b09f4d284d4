"""The lines of `hatcast dump`, read back: a topic's records as `hatcast batch --format kafka` folds them.    [fold.md]

{"topic": "telemetry", "partitions": 8, "start_offsets": [0, 0, ..]}
{"topic": "telemetry", "partition": 3, "offset": 17, "ts": 1641081583000, "key": "R0o=", "value": "eyJ2.."}

Several files are one dump in parts: each begins with its header, and offsets go on rising.
"""

from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec

from hatcast.agents.kafka.dump import Head, Line
from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import Feed, Recorded
from hatcast.stream.readings.recording import Recording


def _lines(stream: BinaryIO, path: str) -> Iterator[Recorded]:
    """A dump's lines as they stand. None tells an arrival of its own, so all tie and keep the order of the file."""
    del path
    for line in stream:
        if not line.isspace():
            yield Recorded(line, None, None)


# For hatcast.agents.recordings.files, which opens plain files, gzip and pipes, and says what is wrong with one.
DUMP: Final = Feed("kafka", lambda _: None, _lines)

_read_head: Final = msgspec.json.Decoder(Head).decode
_read_line: Final = msgspec.json.Decoder(Line).decode
_MEND: Final = "give the output of `hatcast dump`"


class Dump:
    """The records of a dump, checked: one topic, known partitions, offsets that rise.

    Raises RecordingError, on opening if the first line is no header, else on the way.
    """

    def __init__(self, recording: Recording, name: str) -> None:
        self._recording = recording
        self._name = name
        first = next(iter(recording), None)
        if first is None:
            raise RecordingError(name, "is empty", _MEND)
        self.head = self._head(first[1].raw, 1)

    def __len__(self) -> int:
        """Lines, the headers among them."""
        return len(self._recording)

    def __iter__(self) -> Iterator[Line]:
        head = self.head
        following = list(head.start_offsets)
        for number, (_, recorded) in enumerate(self._recording, start=1):
            try:
                line = _read_line(recorded.raw)
            except (ValueError, RecursionError):
                if self._head(recorded.raw, number) != head:
                    raise self._bad(number, "is the header of another dump", "give parts of one dump") from None
                continue
            if line.topic != head.topic or not 0 <= line.partition < head.partitions:
                raise self._bad(number, "is of a topic or partition that the header does not name", _MEND)
            if line.offset < following[line.partition]:
                raise self._bad(number, f"has offset {line.offset}, which does not rise in its partition", _MEND)
            following[line.partition] = line.offset + 1
            yield line

    def _head(self, raw: bytes, number: int) -> Head:
        try:
            head = _read_head(raw)
        except (ValueError, RecursionError):
            raise self._bad(number, "is no line of a dump", _MEND) from None
        if head.partitions < 1 or len(head.start_offsets) != head.partitions:
            raise self._bad(number, "does not name one start offset a partition", _MEND)
        return head

    def _bad(self, number: int, problem: str, mend: str) -> RecordingError:
        return RecordingError(self._name, f"line {number} {problem}", mend)
