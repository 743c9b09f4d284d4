"""JSON objects of any names, one a line or in an array. A column may be a path into them, such as `position.lat`."""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, BinaryIO, Final

import msgspec

from hatcast.stream.errors import UNREADABLE, RecordingError, readable
from hatcast.stream.readings.formats._columns import ARRIVAL, REQUIRED, VALUE, VALUE_AT, Columns, example, listed
from hatcast.stream.readings.formats._json_values import (
    json_values,
    members_of,
    records_advice,
    split_inside,
    split_json,
    with_member,
)
from hatcast.stream.readings.formats._mapped import Cells, WantedValues, cells_reader, recorded, with_points
from hatcast.stream.readings.formats._times import RepeatedHours
from hatcast.stream.readings.formats.interface import Format, Recorded, wrong_format
from hatcast.stream.readings.reading import Reading

JSONL: Final = "jsonl"
_LOOKED_AT: Final = 100  # first records, whose keys an error lists
_TOPIC: Final = re.compile(r"topic:([1-9][0-9]?)")  # column of a level of a message's MQTT topic, counted from 1
_POSITION: Final = re.compile(r"[0-9]{1,9}")  # in an array

_Object = Mapping[str, Any]
_CellsOf = Callable[[_Object], Cells]
"""object -> the cells of the fields, then that of `arrival`; None if one is missing"""

_read: Final = msgspec.json.Decoder().decode
# Slower, but a number too large for a double is an infinity instead of an error.
_read_any_number: Final = msgspec.json.Decoder(float_hook=float).decode


def mapped_json(columns: Columns, wanted: WantedValues) -> Format:
    """Return the format of JSON objects with these columns. A field without a column is under its own name.

    No column is found by the keys of other records: then one vehicle could change how those of others are read.
    Raises SettingError if the unit is unknown.
    """
    target = wanted.target(columns)
    own = {name: name for name in (*wanted.fields, ARRIVAL)} | {VALUE: wanted.value}
    names = own | dict(columns.names)
    other_value = None if VALUE in columns.names else VALUE
    cells_of, read_one = with_points(_cells_of(names, wanted, other_value), columns), cells_reader(target)
    keep, inside = _filter(columns.where), columns.path
    topics = [(name, int(found[1])) for name in (*names.values(), *columns.where) if (found := _TOPIC.fullmatch(name))]

    def decode(value: bytes) -> Reading | None:
        found = _object_of(value)
        return None if found is None else read_one(cells_of(found))

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        read, raws = cells_reader(target, RepeatedHours()), json_values(stream, path, inside)
        first = list(islice(raws, _LOOKED_AT))
        matched = not first
        for raw in chain(first, raws):
            found = _object_of(raw)
            if found is not None and keep is not None and not keep(found):
                matched = True
                continue
            cells = () if found is None else cells_of(found)
            reading = read(cells) if cells else None
            matched = matched or any(cell is not None for cell in cells)
            yield recorded(raw, cells, reading, target)
        if not matched:
            raise _no_column(first, names, path)

    def split(body: bytes, topic: str = "") -> list[bytes]:
        found = split_json(body) if inside is None else split_inside(body, inside)
        levels = topic.split("/") if topics else []
        for column, level in topics:
            if level <= len(levels):
                found = [with_member(raw, column, levels[level - 1]) for raw in found]
        if keep is None:
            return found
        return [raw for raw in found if (each := _object_of(raw)) is None or keep(each)]

    plain = inside is None and keep is None and not topics
    return Format(JSONL, decode, records, split_json if plain else split, "json")


def _no_column(first: Iterable[bytes], names: Mapping[str, str], path: str) -> RecordingError:
    """Return the error for a recording in which no record has one of the columns."""
    advice = next((each for record in first if (each := records_advice(record)) is not None), None)
    if advice is not None:
        return RecordingError(path, "has none of the columns", f"it {advice}")
    keys = member_names(first)
    if not keys:
        return wrong_format(path, "JSON", "one JSON object a line, or an array of them")
    wrong = example(name for name in REQUIRED if names[name] not in keys)
    return RecordingError(path, f"has none of the columns, but {listed(keys)}", f"write columns such as {wrong}")


def member_names(records: Iterable[bytes]) -> list[str]:
    """Return the paths of the members of JSON objects, as columns name them, each once."""
    keys: dict[str, None] = {}
    for record in records:
        for key, member in members_of(_object_of(record) or {}):
            numbers = [f"{key}.{at}" for at in range(min(len(member), 3))] if isinstance(member, list) else [key]
            keys |= dict.fromkeys(numbers)
    return list(keys)


def first_records(head: bytes, inside: Sequence[str] | None) -> list[bytes]:
    """Return the first records of a JSON file that are whole in its first bytes. inside: as of `json_values`."""
    if inside is None and not head.lstrip().startswith(b"["):
        found = split_json(head)[:_LOOKED_AT]
    else:
        found = []
        with suppress(RecordingError):  # an array that is cut off
            for record in islice(json_values(io.BytesIO(head), "", inside), _LOOKED_AT):
                found.append(record)
    return [each for each in found if _object_of(each) is not None]


def first_members(head: bytes, columns: Columns) -> list[str]:
    """Return the paths of the members of the first records of a JSON file, by its first bytes."""
    return member_names(first_records(head, columns.path))


def _object_of(value: bytes) -> _Object | None:
    try:
        found = _read(value)
    except UNREADABLE:
        found = readable(_read_any_number, value)
    return found if isinstance(found, dict) else None


def _filter(where: Mapping[str, str]) -> Callable[[_Object], bool] | None:
    """Return whether an object has these values; None: any has."""
    wanted = [(_getter(column), value) for column, value in where.items()]
    return (lambda found: all(_text(get(found)) == value for get, value in wanted)) if wanted else None


def _text(cell: object) -> str | None:
    """Return a cell as `--where` has it."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return cell.strip() if isinstance(cell, str) else str(cell) if isinstance(cell, int | float) else None


def _cells_of(names: Mapping[str, str], wanted: WantedValues, other_value: str | None) -> _CellsOf:
    """Return a function that finds the cells of the fields in an object.

    other_value   another key of the value, if the first one is missing
    """
    columns = [names[name] for name in (*wanted.fields, ARRIVAL)]
    plain = all("." not in column for column in columns)
    getters = [_getter(column) for column in columns]

    def cells_of(found: _Object) -> Cells:
        cells = [*map(found.get, columns)] if plain else [get(found) for get in getters]
        if other_value is not None and cells[VALUE_AT] is None:
            cells[VALUE_AT] = found.get(other_value)
        return cells

    return cells_of


def _getter(column: str) -> Callable[[_Object], Any]:
    path = column.split(".")

    def get(found: _Object) -> Any:
        member: Any = found.get(column)  # a key with dots, of flattened JSON
        if member is not None:
            return member
        member = found
        for part in path:
            if isinstance(member, dict):
                member = member.get(part)
            elif isinstance(member, list) and _POSITION.fullmatch(part) and int(part) < len(member):
                member = member[int(part)]
                if isinstance(member, dict):
                    return None  # one of several records: `Columns.records` reads each
            else:
                return None
        return member

    return get if len(path) > 1 else lambda found: found.get(column)
