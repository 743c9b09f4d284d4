"""Golden messages: schemas/golden/VERSION/RECORD/CASE.json, kept for each released version."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

FOLDER_NAME: Final = "golden"


class Golden(msgspec.Struct, frozen=True, kw_only=True):
    """One message as it stands in Kafka. `value` keeps its bytes."""

    key: str | None
    headers: dict[str, str]
    value: msgspec.Raw

    def text(self) -> bytes:
        """The file's content: the value on a line of its own, byte for byte."""
        key, headers = msgspec.json.encode(self.key), msgspec.json.encode(self.headers)
        return b'{"key": %b,\n"headers": %b,\n"value": %b}\n' % (key, headers, bytes(self.value))

    @property
    def payload(self) -> dict[str, Any]:
        """The value, read without its type."""
        payload: dict[str, Any] = msgspec.json.decode(self.value)
        return payload


_GOLDEN: Final = msgspec.json.Decoder(Golden, strict=True)


def golden_files(folder: Path, version: str) -> Iterator[Path]:
    """The files of a version in order: the folder above a file names the record.

    folder   schemas/
    """
    yield from sorted((folder / FOLDER_NAME / version).glob("*/*.json"))


def read_golden(path: Path) -> Golden:
    """One message. Raises msgspec.DecodeError."""
    return _GOLDEN.decode(path.read_bytes())
