"""OpenAPI 3.1 document of the API, generated from the types of its responses and of the topics' records."""

import html
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from hatcast.agents.map import openapi_types as types
from hatcast.agents.map.record import RecordKind
from hatcast.agents.map.rendering import ALL, MEDIA_TYPES, WITHOUT_PLACES, Awaited, ResponseFormat

PATH: Final = "/api/v1/openapi.json"
_VERSION: Final = "1"
_JSON: Final = (ResponseFormat.JSON,)
_COMPONENTS: Final = "#/components/schemas/{name}"

Json = dict[str, Any]

_TEXT: Final[Json] = {"type": "string"}
_INSTANT: Final[Json] = {"type": "string", "format": "date-time"}
_PARAMETERS: Final[dict[str, tuple[str, Json, str]]] = {
    "policy": ("query", _TEXT, "name of a policy; by default the configured one, or the newest until it has a release"),
    "slot": ("query", {"type": "string", "pattern": types.SLOT}, "local start of a stored slot; by default the latest"),
    "cell": ("path", {"type": "string", "pattern": "^[0-9a-f]{15}$"}, "H3 index"),
    "name": ("query", _TEXT, "name of a running mean; by default all of them"),
    "from": ("query", _INSTANT, "first instant; slots that begin before it are left out"),
    "to": ("query", _INSTANT, "instant after the last; slots that begin at it or later are left out"),
    "query": ("query", _TEXT, "name of a query over days"),
    "period": ("query", {"type": "string", "format": "date"}, "first date of a period; by default the newest period"),
    "time": ("query", {"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$"}, "local start of a slot"),
    "kind": ("query", {"type": "string", "enum": [*RecordKind]}, "only the records of this kind"),
    "seen": ("query", _TEXT, "id of the last event that was read; the header Last-Event-ID has priority"),
}
_ERRORS: Final = {
    400: "A parameter is wrong: the error has the right form",
    404: "It is not stored, or was never published",
    503: "The topics are still being read, or the server is full: see Retry-After",
}
_MISSING: Final = (400, 404, 503)
_BY_CLOCK: Final = (400,)
_OF_SLOT: Final = ("policy", "slot", "format")
_OF_CELL: Final = ("cell", "policy", "format")
_OF_SPAN: Final = ("cell", "policy", "from", "to", "format")
_OF_ANSWERS: Final = ("policy", "query", "period", "time", "format")
_GEOJSON: Final = (ResponseFormat.GEOJSON,)


@dataclass(frozen=True, slots=True)
class _Operation:
    """A path. response: type of its JSON; parameters: names in `_PARAMETERS`; errors: HTTP statuses."""

    path: str
    name: str
    summary: str
    response: type[msgspec.Struct]
    parameters: Sequence[str] = ()
    formats: Sequence[ResponseFormat] = ALL
    errors: Sequence[int] = _MISSING


OPERATIONS: Final = (
    _Operation("/latest", "latest", "Releases of a slot", types.Releases, _OF_SLOT),
    _Operation("/estimates", "estimates", "Estimates of a slot", types.Estimates, _OF_SLOT),
    _Operation("/cells/{cell}", "cell", "Releases of a cell", types.CellReleases, _OF_SPAN),
    _Operation("/cells/{cell}/estimates", "cellEstimates", "Estimates of a cell", types.CellEstimates, _OF_SPAN),
    _Operation(
        "/running", "running", "Newest running mean of each name and cell", types.Running, ("policy", "name", "format")
    ),
    _Operation("/cells/{cell}/running", "cellRunning", "Running means of a cell", types.CellRunning, _OF_CELL),
    _Operation("/continual", "continual", "Releases of a continual policy of a slot", types.Continual, _OF_SLOT),
    _Operation(
        "/cells/{cell}/continual",
        "cellContinual",
        "Releases of a continual policy of a cell",
        *(types.CellContinual, _OF_SPAN),
    ),
    _Operation("/queries", "queries", "Answers to queries over days", types.Answers, _OF_ANSWERS),
    _Operation("/cells/{cell}/queries", "cellQueries", "Answers about a cell", types.CellAnswers, _OF_CELL),
    _Operation("/slots", "slots", "Everything that is stored of a policy", types.Stored, ("policy",), _JSON),
    _Operation(
        "/clusterings",
        "clusterings",
        "Results of clusterings",
        *(types.Clusterings, ("policy", "format"), WITHOUT_PLACES),
    ),
    _Operation("/status", "status", "Freshness of the records", types.StatusView, (), _JSON, _BY_CLOCK),
    _Operation("/awaited", "awaited", "Slot that closes next", Awaited, (), _JSON, _BY_CLOCK),
    _Operation(
        "/surroundings",
        "surroundings",
        "Timetable and base map of the map",
        *(types.SurroundingsView, (), _JSON, _BY_CLOCK),
    ),
    _Operation("/routes", "routes", "Routes of the timetable", types.FeatureCollection, (), _GEOJSON, (400, 404)),
    _Operation("/stops", "stops", "Stops of the timetable", types.FeatureCollection, (), _GEOJSON, (400, 404)),
)


def document() -> Json:
    """Return the OpenAPI document."""
    responses = [*dict.fromkeys(each.response for each in OPERATIONS), types.Error]
    schemas: Json = msgspec.json.schema_components(responses, ref_template=_COMPONENTS)[1]
    for schema in schemas.values():
        schema["description"] = inspect.cleandoc(schema.get("description", ""))
    paths: Json = {f"/api/v1{each.path}": {"get": _operation(each)} for each in OPERATIONS}
    paths["/api/v1/events"] = {"get": _EVENTS}
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "The API of hatcast's live map",
            "version": _VERSION,
            "description": "Differentially private means that are published on Kafka. Records keep the bytes of their"
            " topic; which of their fields are present is in their JSON Schemas.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": schemas},
    }
    # As it is read: a default that is a tuple is an array.
    decoded: Json = _plain_arrays(msgspec.json.decode(msgspec.json.encode(made), type=Json))
    return decoded


def _plain_arrays(schema: Any) -> Any:
    """Return a schema whose arrays have one type of items, also of a fixed length: generators of clients need it."""
    if isinstance(schema, list):
        return [_plain_arrays(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _plain_arrays(each) for name, each in schema.items()}
    if found.get("type") == "array":
        found.setdefault("items", {})
    if found.get("items") is False:
        every = found.pop("prefixItems")
        kinds = [each for at, each in enumerate(every) if each not in every[:at]]
        found["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    return found


def index() -> bytes:
    """Return the list of paths as JSON."""
    paths = {f"/api/v1{each.path}": each.summary for each in OPERATIONS}
    paths["/api/v1/events"] = _EVENTS["summary"]
    return msgspec.json.format(msgspec.json.encode({"openapi": PATH, "paths": paths}), indent=2) + b"\n"


def index_page() -> bytes:
    """Return the index of the API as a page: for each path its result, its parameters and a link."""
    rows = [_row(each.path, each.summary, each.parameters, each.formats) for each in OPERATIONS]
    rows.append(_row("/events", _EVENTS["summary"], ("policy", "kind", "seen"), ()))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The API of this map</title><link rel="stylesheet" href="/style.css"></head>
<body><main><section class="card"><h1>The API of this map</h1>
<p>Everything that the <a href="/">map</a> shows, for programs. <a href="{PATH}">The OpenAPI document</a> has all types;
generators make clients of it, such as openapi-python-client.</p>
<table class="all"><thead><tr><th>path</th><th>what</th><th>parameters</th><th>formats</th></tr></thead>
<tbody>{"".join(rows)}</tbody></table></section></main></body></html>
""".encode()


def _row(path: str, summary: str, parameters: Iterable[str], formats: Iterable[str]) -> str:
    whole = f"/api/v1{path}"
    link = whole if "{" in path or path == "/events" else f'<a href="{whole}">{whole}</a>'
    cells = (f"<code>{link}</code>", html.escape(summary), ", ".join(parameters) or "none", ", ".join(formats))
    return f"<tr>{''.join(f'<td>{each}</td>' for each in cells)}</tr>"


def document_text() -> bytes:
    """Return the document as a file."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=2) + b"\n"


def _operation(made: _Operation) -> Json:
    tag = {} if made.name in _UNCACHED else {"headers": {"ETag": _TAG}}
    lines = "a header, then a line for each record, with the record's digits"
    schemas: dict[ResponseFormat, Json] = {
        ResponseFormat.JSON: {"$ref": _COMPONENTS.format(name=made.response.__name__)},
        ResponseFormat.GEOJSON: {"$ref": _COMPONENTS.format(name=types.FeatureCollection.__name__)},
        ResponseFormat.CSV: {"type": "string", "description": lines},
    }
    return {
        "operationId": made.name,
        "summary": made.summary,
        "parameters": [_parameter(each, made.formats) for each in made.parameters],
        "responses": {
            "200": {
                "description": made.summary,
                **tag,
                "content": {MEDIA_TYPES[each]: {"schema": schemas[each]} for each in made.formats},
            },
            **({"304": {"description": "The client has it: If-None-Match has its ETag"}} if tag else {}),
            **_errors(made.errors),
        },
    }


_UNCACHED: Final = ("status", "awaited")
_TAG: Final[Json] = {"description": "of the published bytes", "schema": _TEXT}


def _parameter(name: str, formats: Sequence[ResponseFormat]) -> Json:
    if name == "format":
        schema: Json = {"type": "string", "enum": [*formats], "default": ResponseFormat.JSON}
        return {"name": name, "in": "query", "schema": schema, "description": "without it, the header Accept decides"}
    place, schema, description = _PARAMETERS[name]
    required = {"required": True} if place == "path" else {}
    shown = "slot" if name == "time" else name
    return {"name": shown, "in": place, **required, "schema": schema, "description": description}


def _errors(statuses: Sequence[int]) -> Json:
    content = {MEDIA_TYPES[ResponseFormat.JSON]: {"schema": {"$ref": _COMPONENTS.format(name=types.Error.__name__)}}}
    return {str(each): {"description": _ERRORS[each], "content": content} for each in statuses}


_EVENTS: Final[Json] = {
    "operationId": "events",
    "summary": "Changes as server-sent events: a snapshot or the missed changes, then each new change",
    "parameters": [_parameter(each, _JSON) for each in ("policy", "kind", "seen")],
    "responses": {
        "200": {
            "description": "events `status`, `reset`, `slots`, `release`, `estimate`, `running`, `continual`, `budget`,"
            " `ready` and `alive`",
            "content": {"text/event-stream": {"schema": _TEXT}},
        },
        **_errors((400, 503)),
    },
}
