"""Golden messages: schemas/golden/VERSION/RECORD/CASE.json, frozen at each released version."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

FOLDER_NAME: Final = "golden"


class Golden(msgspec.Struct, frozen=True, kw_only=True):
    """One Kafka message. `value` keeps its exact bytes."""

    key: str | None
    headers: dict[str, str]
    value: msgspec.Raw

    def text(self) -> bytes:
        """Return the file's content, with the value's exact bytes on its own line."""
        key, headers = msgspec.json.encode(self.key), msgspec.json.encode(self.headers)
        return b'{"key": %b,\n"headers": %b,\n"value": %b}\n' % (key, headers, bytes(self.value))

    @property
    def payload(self) -> dict[str, Any]:
        """The value, decoded without its type."""
        payload: dict[str, Any] = msgspec.json.decode(self.value)
        return payload


_GOLDEN: Final = msgspec.json.Decoder(Golden, strict=True)


def golden_files(folder: Path, version: str) -> Iterator[Path]:
    """Yield the golden files of a version in order. The name of a file's folder is the record's.

    folder   schemas/
    """
    yield from sorted((folder / FOLDER_NAME / version).glob("*/*.json"))


def read_golden(path: Path) -> Golden:
    """Decode one golden message. Raises msgspec.DecodeError."""
    return _GOLDEN.decode(path.read_bytes())
