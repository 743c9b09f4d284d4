"""Generate JSON Schema (2020-12) of the records from their types and `RULES`."""

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from hatcast.stream.records.fields import When
from tools.schemas.records import RECORDS

FOLDER: Final = Path(__file__).parents[2] / "schemas"
SUFFIX: Final = ".schema.json"
_CITATION: Final = re.compile(r"\s+\[[^\]]*\]$", re.MULTILINE)  # citations at the end of docstrings, such as "[H 4.2]"

Schema = dict[str, Any]


def schema_of(name: str) -> Schema:
    """Return the schema of a record, by its name in `RECORDS`."""
    return schema_of_type(name, RECORDS[name].type_)


def schema_of_type(title: str, type_: type[msgspec.Struct]) -> Schema:
    """Return the schema of a record type.

    It is open: additional fields are valid, so that today's consumers accept tomorrow's records.
    """
    (schema,), definitions = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    for definition in definitions.values():
        _describe(definition)
    for struct in _structs(type_):
        _require(definitions[struct.__name__], getattr(struct, "RULES", ()))
        if alternatives := getattr(struct, "ONE_OR_MORE_OF", ()):
            definitions[struct.__name__]["anyOf"] = [{"required": [name]} for name in alternatives]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **schema,
        "$defs": definitions,
    }


def schema_text(name: str) -> bytes:
    """Return the schema file's content."""
    return msgspec.json.format(msgspec.json.encode(schema_of(name)), indent=2) + b"\n"


def _structs(type_: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """Return a record type and the record types nested in it."""
    structs: list[type[msgspec.Struct]] = [type_]
    for struct in structs:
        for field in msgspec.structs.fields(struct):
            structs += [inner for inner in _nested(field.type) if inner not in structs]
    return structs


def _nested(annotation: object) -> Iterable[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _nested(argument)


def _describe(definition: Schema) -> None:
    """Simplify a definition in place: clean docstrings, no null, uniform tuples as arrays of fixed length.

    Optional fields are absent, never null. Such arrays mean the same in draft-07, which AsyncAPI's tools expect.
    """
    text = _CITATION.sub("", inspect.cleandoc(definition.get("description", "")))
    definition["description"] = text
    for name, field in definition.get("properties", {}).items():
        options = [option for option in field.get("anyOf", ()) if option != {"type": "null"}]
        if len(options) == 1 and field.get("default", ...) is None:
            said = {"description": field["description"]} if "description" in field else {}
            definition["properties"][name] = said | options[0]
        items = definition["properties"][name].pop("prefixItems", ())
        if items:
            if any(item != items[0] for item in items):
                raise ValueError(f"{name}: a tuple of several types has no schema that all tools support")
            definition["properties"][name]["items"] = items[0]


def _require(definition: Schema, rules: Iterable[When]) -> None:
    """Add conditions: which fields are required and which are absent, by the values of others."""
    conditions: list[Schema] = []
    for rule in rules:
        condition: Schema = {"required": [rule.field]}
        if rule.values:
            condition = {"properties": {rule.field: {"enum": [*rule.values]}}, **condition}
        present, conditional = [*rule.has, *rule.needs], [*rule.has, *rule.allows]
        then: Schema = {"then": {"required": present}} if present else {}
        otherwise: Schema = {"else": {"properties": dict.fromkeys(conditional, False)}} if conditional else {}
        conditions.append({"if": condition, **then, **otherwise})
    if conditions:
        definition["allOf"] = conditions
