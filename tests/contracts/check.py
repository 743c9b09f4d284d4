"""What has to agree: types, schemas, AsyncAPI document and golden messages, of this version and of released ones.

Each check gives a line for each thing that is wrong. They take a folder and the record types, so that tests can hand
them broken ones. The AsyncAPI documents' own schema is tests/data/asyncapi/3.0.0.json: `schemas/3.0.0.json` of the npm
package @asyncapi/specs 6.11.1 (Apache-2.0), which holds those of the Kafka bindings too.
"""

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from jsonschema import Draft7Validator, Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT7

from hatcast.agents.config.tables import TopicsTable
from tools.schemas.asyncapi import BINDING, DOCUMENT, headers_schema
from tools.schemas.golden import FOLDER_NAME, Golden, golden_files, read_golden
from tools.schemas.json_schema import SUFFIX, schema_of_type
from tools.schemas.records import RecordType

Records = Mapping[str, RecordType]
Problems = Iterator[str]

FROZEN: Final = "frozen.json"  # version -> digest of its goldens
_SPECIFICATION: Final = Path(__file__).parents[1] / "data" / "asyncapi" / "3.0.0.json"
_BINDINGS: Final = "http://asyncapi.com/bindings/kafka/{version}/{kind}.json"


def schema_problems(folder: Path, records: Records) -> Problems:
    """Each schema file is what its type says, is a schema, and describes every field."""
    for name, record in records.items():
        path = folder / f"{name}{SUFFIX}"
        if not path.is_file():
            yield f"{path.name} is missing"
            continue
        schema = json.loads(path.read_bytes())
        if schema != msgspec.json.decode(msgspec.json.encode(schema_of_type(name, record.type_))):
            yield f"{path.name} is not what {record.type_.__name__} says"
        Draft202012Validator.check_schema(schema)
        for title, definition in schema["$defs"].items():
            for field, told in definition.get("properties", {}).items():
                if not told.get("description") and "$ref" not in told:
                    yield f"{path.name}: {title}.{field} has no description"
            if not definition.get("description"):
                yield f"{path.name}: {title} has no description"


def golden_problems(folder: Path, version: str, records: Records) -> Problems:
    """Each golden of a version validates, and its type reads it and writes the same bytes: no field is lost."""
    for path in golden_files(folder, version):
        where, record = f"{version}/{path.parent.name}/{path.name}", records.get(path.parent.name)
        if record is None:
            yield f"{where}: there is no such record any more"
            continue
        golden = read_golden(path)
        schema = json.loads((folder / f"{record.name}{SUFFIX}").read_bytes())
        yield from (f"{where}: {line}" for line in value_problems(closed(schema), golden.payload))
        try:
            written = msgspec.json.encode(msgspec.json.decode(golden.value, type=record.type_))
        except msgspec.ValidationError as error:
            yield f"{where}: {record.type_.__name__} does not read it: {error}"
        else:
            if written != bytes(golden.value):
                yield f"{where}: {record.type_.__name__} writes other bytes: {written.decode()}"


def header_problems(folder: Path, version: str, records: Records) -> Problems:
    """Keys and headers of this version's goldens are those that are sent. Earlier versions may have had fewer."""
    for path in golden_files(folder, version):
        record = records.get(path.parent.name)
        if record is not None:
            found = message_problems(record, read_golden(path), TopicsTable().telemetry)
            yield from (f"{version}/{record.name}/{path.name}: {line}" for line in found)


def value_problems(schema: dict[str, Any], value: object) -> Problems:
    """What a schema says against a value."""
    yield from (f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(value))


def message_problems(record: RecordType, golden: Golden, telemetry: str) -> Problems:
    """Key and headers are what the record says of them. `telemetry`: the topic that the event comes of."""
    payload = golden.payload
    key = "/".join(str(payload[field]) for field in record.key_of) if record.key_of else None
    if golden.key != key:
        yield f"the key is {golden.key!r}, not {key!r}"
    if record.event_id is None:
        if golden.headers:
            yield "it has headers"
        return
    yield from value_problems({**headers_schema(record, telemetry), "additionalProperties": False}, golden.headers)
    event_id = "/".join(str(payload[field]) for field in record.event_id.split("/"))
    if golden.headers.get("ce_id") != event_id:
        yield f"ce_id is {golden.headers.get('ce_id')!r}, not {event_id!r}"
    if golden.headers.get("ce_time") != payload.get("released_at"):
        yield f"ce_time is {golden.headers.get('ce_time')!r}, not released_at"


def coverage_problems(folder: Path, version: str, records: Records) -> Problems:
    """Of every record there are goldens, and every field and every word that a field may be is in one of them."""
    wanted, seen, none = set[str](), set[str](), set(records)
    definitions: dict[str, Any] = {}
    for name, record in records.items():
        definitions |= schema_of_type(name, record.type_)["$defs"]
    for title, definition in definitions.items():
        for field, told in definition.get("properties", {}).items():
            wanted |= {f"{title}.{field}", *(f"{title}.{field}={word}" for word in _words(told, definitions))}
    for path in golden_files(folder, version):
        none.discard(path.parent.name)
        if path.parent.name in records:
            seen |= {*_shown(records[path.parent.name].type_.__name__, read_golden(path).payload, definitions)}
    yield from (f"no golden of {name} in {version}" for name in sorted(none))
    yield from (f"no golden in {version} has {found}" for found in sorted(wanted - seen))


def frozen_problems(folder: Path, version: str) -> Problems:
    """The goldens of every version but this one are those that it was released with."""
    frozen: dict[str, str] = json.loads((folder / FOLDER_NAME / FROZEN).read_bytes())
    there = {path.name for path in (folder / FOLDER_NAME).iterdir() if path.is_dir()}
    if version not in there:
        yield f"there are no goldens of {version}: run python -m tests.contracts --write"
    for old in sorted(there | frozen.keys()):
        if old not in there:
            yield f"the goldens of {old} are gone"
        elif old in frozen and frozen[old] != digest(folder, old):
            yield f"the goldens of {old} were changed after its release"
        elif old not in frozen and old != version:
            yield f"the goldens of {old} are not frozen: run python -m tests.contracts --freeze {old}"


def document_problems(folder: Path, records: Records) -> Problems:
    """The AsyncAPI document follows its specification and the Kafka bindings', and its examples the schemas."""
    text = yaml.safe_load((folder / DOCUMENT).read_text())
    specification = json.loads(_SPECIFICATION.read_bytes())
    yield from (
        f"{DOCUMENT}: {error.json_path}: {error.message}" for error in _document(specification).iter_errors(text)
    )
    for kind, where, bindings in _bindings(text):
        if bindings.get("bindingVersion") != BINDING["bindingVersion"]:
            yield f"{DOCUMENT}: {where} has no bindingVersion {BINDING['bindingVersion']}"
        for error in _document(specification, _BINDINGS.format(kind=kind, **_version())).iter_errors(bindings):
            yield f"{DOCUMENT}: {where}: {error.message}"
    for reference in _references(text):
        if not _resolves(reference, text, folder):
            yield f"{DOCUMENT}: {reference} leads nowhere"
    messages: dict[str, Any] = text["components"]["messages"]
    if messages.keys() != records.keys():
        yield f"{DOCUMENT}: the messages are {', '.join(messages)}"
    for name, message in messages.items():
        if not message["examples"]:
            yield f"{DOCUMENT}: {name} has no examples"
        schema = json.loads((folder / message["payload"]["$ref"]).read_bytes())
        for example in message["examples"]:
            found = [
                *value_problems(schema, example["payload"]),
                *value_problems(message.get("headers", {}), example.get("headers", {})),
            ]
            yield from (f"{DOCUMENT}: {name}: {example['name']}: {line}" for line in found)


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema without room for fields that it does not know."""
    made = copy.deepcopy(schema)
    for definition in made["$defs"].values():
        if definition.get("type") == "object":
            definition["additionalProperties"] = False
    return made


def digest(folder: Path, version: str) -> str:
    """Of names and contents of a version's goldens."""
    hashed = hashlib.blake2b(digest_size=16)
    for path in golden_files(folder, version):
        hashed.update(f"{path.parent.name}/{path.name}\n".encode() + path.read_bytes())
    return hashed.hexdigest()


def _document(specification: dict[str, Any], identity: str | None = None) -> Draft7Validator:
    """The specification's validator, or that of one of the schemas in it."""
    registry = Registry().with_resources(
        (name, DRAFT7.create_resource(schema)) for name, schema in specification["definitions"].items()
    )
    schema = specification if identity is None else specification["definitions"][identity]
    return Draft7Validator(schema, registry=registry)


def _version() -> dict[str, str]:
    return {"version": str(BINDING["bindingVersion"])}


def _bindings(text: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    places = {
        "server": text["servers"],
        "channel": text["channels"],
        "operation": text["operations"],
        "message": {name: each for name, each in text["components"]["messages"].items() if "bindings" in each},
    }
    for kind, named in places.items():
        for name, each in named.items():
            yield kind, f"{kind} {name}", each["bindings"]["kafka"]


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for name, inner in value.items():
            if name != "examples":
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)


def _resolves(reference: str, text: dict[str, Any], folder: Path) -> bool:
    file, _, pointer = reference.partition("#")
    if file:
        return not pointer and (folder / file).is_file()
    found: Any = text
    for step in pointer.strip("/").split("/"):
        if not isinstance(found, dict) or step not in found:
            return False
        found = found[step]
    return True


def _words(told: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[str]:
    """What a field may be, if it is one of some words."""
    words: list[str] = told.get("enum", definitions.get(_title(told), {}).get("enum", []))
    return words


def _title(told: Mapping[str, Any]) -> str:
    return str(told.get("$ref", "")).rpartition("/")[2]


def _shown(title: str, payload: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    """The fields and words that a golden has, by the definition that they are of."""
    for field, value in payload.items():
        yield f"{title}.{field}"
        yield f"{title}.{field}={value}"
        told = definitions[title]["properties"].get(field, {})
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                yield from _shown(_title(told.get("items", told)), inner, definitions)
