"""JSON Schema (2020-12) of the records, from their types and `RULES`."""

import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from hatcast.stream.records import When
from tools.schemas.records import RECORDS

FOLDER: Final = Path(__file__).parents[2] / "schemas"
SUFFIX: Final = ".schema.json"
_SOURCE: Final = re.compile(r"\s+\[[^\]]*\]$", re.MULTILINE)  # "[design 6]" at a docstring's end

Schema = dict[str, Any]


def schema_of(name: str) -> Schema:
    """The schema of a record, by its name in `RECORDS`."""
    return schema_of_type(name, RECORDS[name].type_)


def schema_of_type(title: str, type_: type[msgspec.Struct]) -> Schema:
    """The schema of any type of record.

    It is open: a record may have more fields than it knows, so that a reader of today reads tomorrow's records.
    """
    (schema,), definitions = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    for definition in definitions.values():
        _describe(definition)
    for struct in _structs(type_):
        _require(definitions[struct.__name__], getattr(struct, "RULES", ()))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **schema,
        "$defs": definitions,
    }


def text_of(name: str) -> bytes:
    """The schema file's content."""
    return msgspec.json.format(msgspec.json.encode(schema_of(name)), indent=2) + b"\n"


def _structs(type_: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """A record and the records in it, as far as msgspec makes definitions of them."""
    found: list[type[msgspec.Struct]] = [type_]
    for struct in found:
        found += [inner for field in msgspec.structs.fields(struct) for inner in _in(field.type) if inner not in found]
    return found


def _in(annotation: object) -> Iterable[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _in(argument)


def _describe(definition: Schema) -> None:
    """Docstrings as people read them; what has no value is absent, so nothing is null.

    Tuples of one type as arrays of so many items, which draft-07 reads alike: AsyncAPI's tools expect that.
    """
    text = _SOURCE.sub("", inspect.cleandoc(definition.get("description", "")))
    definition["description"] = text
    for name, told in definition.get("properties", {}).items():
        options = [option for option in told.get("anyOf", ()) if option != {"type": "null"}]
        if len(options) == 1 and told.get("default", ...) is None:
            definition["properties"][name] = options[0]
        items = definition["properties"][name].pop("prefixItems", ())
        if items:
            if any(item != items[0] for item in items):
                raise ValueError(f"{name}: a tuple of several types has no schema that all tools read")
            definition["properties"][name]["items"] = items[0]


def _require(definition: Schema, rules: Iterable[When]) -> None:
    """Which fields are there and which are absent, by the values of others."""
    conditions: list[Schema] = []
    for rule in rules:
        holds: Schema = {"required": [rule.field]}
        if rule.values:
            holds = {"properties": {rule.field: {"enum": [*rule.values]}}, **holds}
        lacks = {"properties": dict.fromkeys((*rule.has, *rule.allows), False)}
        then: Mapping[str, Schema] = {"then": {"required": [*rule.has]}} if rule.has else {}
        conditions.append({"if": holds, **then, "else": lacks})
    if conditions:
        definition["allOf"] = conditions
