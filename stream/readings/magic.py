"""Recognise file types by their first bytes: containers to unpack, and files that are not recordings."""

import codecs
import re
from contextlib import suppress
from typing import Final

HEAD_BYTES: Final = 264
PARQUET_MAGIC: Final = b"PAR1"
_CONTAINERS: Final = {
    "gzip": b"\x1f\x8b",
    "bzip2": b"BZh",
    "xz": b"\xfd7zXZ\0",
    "zstd": b"\x28\xb5\x2f\xfd",
    "zip": b"PK\x03\x04",
    "Parquet": PARQUET_MAGIC,
}
_BZIP2_BLOCK: Final = b"1AY&SY"  # a column's name may begin with BZh
_CSV: Final = "export it as CSV"
_FOREIGN: Final = (
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", _CSV),
    (b"SQLite format 3\0", "a SQLite database", _CSV),
    (b"Obj\x01", "Avro", "convert it to Parquet"),
    (b"ARROW1\0", "an Arrow file", "convert it to Parquet"),
    (b"\x89HDF", "HDF5", _CSV),
    ((b"CDF\x01", b"CDF\x02"), "NetCDF", _CSV),
    (b"ORC", "ORC", "convert it to Parquet"),
    (b"RDX", "data of R", _CSV),
    ((b"\x80\x04\x95", b"\x80\x05\x95"), "a pickle of Python", _CSV),
    (b"\x1f\x9d", "packed with compress", "unpack it"),
    (b"]\0\0", "packed with lzma", "unpack it"),
    (b"\xff\x06\0\0sNaPpY", "packed with snappy", "unpack it"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it"),
    (b"Rar!", "a RAR archive", "unpack it"),
    (b"PK\x05\x06", "an empty zip file", "fetch it again"),
    (b"\x04\x22\x4d\x18", "lz4", "unpack it"),
    (b"%PDF", "a PDF document", _CSV),
)
_TAR: Final = slice(257, 262)
_NAMED: Final = "name it with `--encoding {}`, or save it as UTF-8"
_TEXTS: Final = (
    (rb"\xff\xfe\0\0|\0\0\xfe\xff", "UTF-32", _NAMED.format("utf-32")),
    (rb"\xff\xfe|\xfe\xff", "UTF-16", _NAMED.format("utf-16")),
    (rb"([\t -~]\0){4}", "UTF-16 without its mark", _NAMED.format("utf-16-le")),
    (rb"(\0[\t -~]){4}", "UTF-16 without its mark", _NAMED.format("utf-16-be")),
    (rb'\{\s*(["}]|$)|\[\s*(\{|$)', "JSON", "use `--format jsonl`"),  # a column may begin with such a sign too
    (rb"(?i:<(!doctype )?html)", "a web page", "fetch the data itself"),
    (
        rb"<(\?xml|!|[A-Za-z_][\w.:-]*[\s>/])",
        "XML, such as SIRI or GPX",
        "use `--format siri` for SIRI, and convert others to CSV",
    ),
)


def container_of(head: bytes) -> str | None:
    """Return which container a file is, by its first bytes; None: it is not one that is unpacked."""
    for name, magic in _CONTAINERS.items():
        if head.startswith(magic) and (name != "bzip2" or head[4:10] == _BZIP2_BLOCK):
            return name
    return None


def is_utf16(head: bytes) -> bool:
    """Return whether a text begins with the mark of UTF-16."""
    return head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def encoding_of(head: bytes) -> str:
    """Return the encoding of a text, guessed from its first bytes."""
    if is_utf16(head):
        return "utf-16"
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    with suppress(UnicodeDecodeError):
        if "\0" not in codecs.getincrementaldecoder("utf-8")().decode(head):  # it may be cut in a character
            return "utf-8"
    return "not UTF-8: latin-1 or cp1252, or no text"


def foreign(head: bytes) -> tuple[str, str] | None:
    """Return the type of a file that cannot be a recording, by its first bytes, and the fix; else None."""
    if head[_TAR] == b"ustar":
        return "a tar archive", "unpack it"
    return next(((name, fix) for magic, name, fix in _FOREIGN if head.startswith(magic)), None)


def other_text(line: bytes) -> tuple[str, str] | None:
    """Return the type of a text that cannot be CSV, by its first line, and the fix; else None."""
    for pattern, name, fix in _TEXTS:
        if re.match(pattern, line.lstrip(b" \t\xef\xbb\xbf")):
            return name, fix
    return ("binary", "name its format, unpack it, or export it as CSV") if b"\0" in line else None
