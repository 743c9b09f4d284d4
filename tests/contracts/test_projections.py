"""A projection reads from every golden message what its record types read, and has no field of its own."""

import ast
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hatcast.stream.records.shown  # noqa: F401  # declares one, beside those of `projections`
from hatcast.stream.records import QueryRecord
from hatcast.stream.records.fields import AnyStatus, Status
from hatcast.stream.records.projections import Projection
from tests.services.data import ROOT
from tools.schemas import FOLDER, RECORDS
from tools.schemas.golden import golden_files, read_golden

JSON = msgspec.json.Encoder(decimal_format="number")


def projections(of: type[Projection] = Projection) -> Iterator[type[Projection]]:
    """All that name record types."""
    for each in of.__subclasses__():
        yield from projections(each)
        if each.OF:
            yield each


def goldens(of: type[Projection]) -> list[Path]:
    names = {name for name, record in RECORDS.items() if record.type_ in of.OF}
    return [path for path in golden_files(FOLDER, "0.1.0") if path.parent.name in names]


def is_part(read: Any, of: Any) -> bool:
    """Whether a value is the other, or has some of its fields."""
    if isinstance(read, dict) and isinstance(of, dict):
        return all(is_part(value, of.get(name)) for name, value in read.items())
    if isinstance(read, list) and isinstance(of, list):
        return len(read) == len(of) and all(map(is_part, read, of))
    return bool(read == of)


def differences(kind: type[Projection], value: bytes) -> list[str]:
    """The fields of a golden that the projection reads otherwise."""
    payload, read = msgspec.json.decode(value), msgspec.json.decode(value, type=kind)
    found = []
    for field in msgspec.structs.fields(kind):
        shown = getattr(read, field.name)
        if isinstance(shown, msgspec.Raw):
            shown = msgspec.json.decode(shown) if bytes(shown) else field.default
        if field.name in payload:
            is_right = is_part(msgspec.json.decode(JSON.encode(shown)), payload[field.name])
        else:
            is_right = not shown or shown == field.default
        if not is_right:
            found.append(field.name)
    return found


@pytest.mark.parametrize("kind", projections(), ids=lambda kind: kind.__name__)
def test_a_projection_reads_what_its_record_types_read(kind: type[Projection]) -> None:
    assert goldens(kind)
    for path in goldens(kind):
        assert differences(kind, bytes(read_golden(path).value)) == [], path
    fields = {field.name for record in kind.OF for field in msgspec.structs.fields(record)}
    assert {field.name for field in msgspec.structs.fields(kind)} <= fields


def test_a_field_that_is_read_as_another_is_noticed() -> None:
    class Wrong(msgspec.Struct):
        mean: tuple[float, ...] = ()
        unit: str = msgspec.field(name="cell", default="")

    assert differences(Wrong, b'{"cell":"a","unit":"km/h","mean":[1.5]}') == ["unit"]  # type: ignore[arg-type]  # not declared, so that it is in no table


KNOWN = {
    "stream/ledger/adoption.py Published",  # what a ledger takes of a record; it is never decoded
    "stream/release/tracker_records.py StoredDraw",  # with a tracker's whole query
}


def types_of_releases(file: Path) -> Iterator[str]:
    """The types of a file that declare a `release_id` and could be decoded."""
    for each in ast.walk(ast.parse(file.read_text())):
        if isinstance(each, ast.ClassDef) and any("Struct" in ast.unparse(base) for base in each.bases):
            fields = {ast.unparse(part.target) for part in each.body if isinstance(part, ast.AnnAssign)}
            if "release_id" in fields:
                yield f"{file.relative_to(ROOT)} {each.name}"


def test_the_fields_of_a_release_are_declared_with_the_records_only() -> None:
    files = [file for room in ("agents", "lab", "stream") for file in (ROOT / room).rglob("*.py")]
    declared = {each for file in files for each in types_of_releases(file)}
    there = {each for each in declared if each.startswith("stream/records/")}
    assert {"ReleaseRecord", "QueryRecord"} <= {each.split()[1] for each in there}
    assert declared - there - KNOWN == set()
    assert all(kind.__module__.startswith("hatcast.stream.records.") for kind in projections())


def test_the_status_of_a_record_is_one_of_those_that_are_counted() -> None:
    assert {*typing.get_args(AnyStatus)} == {*Status}
    (of_answers,) = (field.type for field in msgspec.structs.fields(QueryRecord) if field.name == "status")
    assert {*typing.get_args(typing.get_args(of_answers)[0])} < {*Status}
