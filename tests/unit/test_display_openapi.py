"""The OpenAPI document: valid, of every path, and true of every response."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from jsonschema import Draft202012Validator

from hatcast.agents.map.openapi import PATH, document
from hatcast.agents.map.rendering import AwaitedReleases
from hatcast.agents.map.server import application
from hatcast.agents.map.surroundings import Basemap, render_surroundings
from hatcast.agents.timetable.network import Network, Stop, TimetableRoute
from tests.asking import answer
from tests.displaying import CELLS, SETTINGS, budget, feed, publish, served
from tests.unit.test_display_formats import RECORDS as STORED
from tests.unit.test_display_formats import made
from tools.schemas import FOLDER
from tools.schemas.__main__ import OPENAPI

DOCUMENT = document()
JSON = "application/json"
REQUESTS = {
    "/api/v1/latest": ("", "?slot=2022-01-02T09:00", "?format=geojson", "?format=csv", "?policy=city&format=json"),
    "/api/v1/estimates": ("", "?slot=2022-01-02T10:00", "?format=geojson", "?format=csv"),
    "/api/v1/cells/{cell}": ("", "?from=2022-01-02T04:30Z", "?format=geojson", "?format=csv"),
    "/api/v1/cells/{cell}/estimates": ("", "?to=2022-01-02T05:30:00Z", "?format=geojson", "?format=csv"),
    "/api/v1/running": ("", "?name=today", "?format=geojson", "?format=csv"),
    "/api/v1/cells/{cell}/running": ("", "?format=geojson", "?format=csv"),
    "/api/v1/continual": ("", "?slot=2022-01-02T10:00", "?format=geojson", "?format=csv"),
    "/api/v1/cells/{cell}/continual": ("", "?to=2022-01-02T05:30:00Z", "?format=geojson", "?format=csv"),
    "/api/v1/queries": ("", "?query=month-speed&period=2021-12-03&slot=09:00", "?format=geojson", "?format=csv"),
    "/api/v1/cells/{cell}/queries": ("", "?format=geojson", "?format=csv"),
    "/api/v1/slots": ("", "?policy=city"),
    "/api/v1/clusterings": ("", "?format=csv"),
    "/api/v1/status": ("",),
    "/api/v1/awaited": ("",),
    "/api/v1/surroundings": ("",),
    "/api/v1/routes": ("",),
    "/api/v1/stops": ("",),
}
WRONG = (
    ("/api/v1/latest", "?format=xml", 400),
    ("/api/v1/latest", "?slot=2030-01-01T09:00", 404),
    ("/api/v1/slots", "?policy=none", 404),
    ("/api/v1/cells/{cell}", "?from=now", 400),
    ("/api/v1/queries", "?period=2030-01-01", 404),
    ("/api/v1/running", "?name=none", 404),
    ("/api/v1/continual", "?slot=2030-01-01T09:00", 404),
    ("/api/v1/status", "?x=1", 400),
    ("/api/v1/routes", "", 404),
)


LINE = ((21.1, 72.8), (21.2, 72.9))
OSM = ("© OpenStreetMap", "https://www.openstreetmap.org/copyright")
BASEMAP = Basemap(Path("city.pmtiles"), (OSM, ("Us", "")), (72.6, 19.0, 72.8, 19.2))
NETWORK = Network(
    (TimetableRoute("1", "Ring", "0055aa", (LINE,)), TimetableRoute("2", "", "", ())), (Stop("Mill", LINE[0], ("1",)),)
)


def responses(path: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = DOCUMENT["paths"][path]["get"]["responses"]
    return found


def validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def check(path: str, status: int, kind: str, body: bytes) -> None:
    """A response is one that the document has."""
    content = responses(path)[str(status)]["content"]
    media = kind.partition(";")[0]
    assert media in content
    if media != "text/csv":
        validator(content[media]["schema"]).validate(json.loads(body))


def test_the_document_is_valid_openapi() -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(DOCUMENT).validate()
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema({**schema, "components": DOCUMENT["components"]})


def test_the_document_is_served_and_stored() -> None:
    status, headers, body = answer(PATH)
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert json.loads(body) == DOCUMENT
    assert (FOLDER / OPENAPI).read_bytes() == body


def paths_of(app: web.Application) -> Iterator[str]:
    for resource in app.router.resources():
        if resource.canonical.startswith("/api/"):
            yield resource.canonical


def test_every_path_of_the_server_is_in_the_document() -> None:
    app = application(feed(), "city", AwaitedReleases(SETTINGS))
    assert {*paths_of(app)} == {*DOCUMENT["paths"], PATH, "/api/v1/"}
    assert {*REQUESTS, "/api/v1/events"} == {*DOCUMENT["paths"]}


def test_a_generator_of_clients_reads_the_whole_document(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", str(FOLDER / OPENAPI)]
    made = subprocess.run(
        [*command, "--output-path", str(tmp_path / "client"), "--meta", "none", "--fail-on-warning"],
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},  # it runs ruff
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    for operation in ("latest", "estimates", "cell_estimates", "slots", "running"):
        assert [*tmp_path.glob(f"client/api/*/{operation}.py")], operation
    assert '"items": false' not in (FOLDER / OPENAPI).read_text()


def test_the_index_lists_every_path_as_a_page_for_browsers_and_else_as_json() -> None:
    found = json.loads(answer("/api/v1/")[2])
    assert {*found["paths"]} == {*DOCUMENT["paths"]}
    _, headers, body = answer("/api/v1/", Accept="text/html,*/*")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    page = body.decode()
    assert all(path in page for path in DOCUMENT["paths"])
    assert not re.search(r"<style|<script|\sstyle=|https?://", page)


@pytest.mark.parametrize("path", REQUESTS)
async def test_every_response_is_as_the_document_says(path: str) -> None:
    stored = made()
    publish(stored, [budget()])
    surroundings = render_surroundings(NETWORK, BASEMAP)

    async with served(stored, surroundings) as (url, client):
        for query in REQUESTS[path]:
            address = url + path.replace("{cell}", CELLS[0]) + query
            async with client.get(address, headers={"Accept-Encoding": "identity"}) as response:
                assert response.status == 200
                body = await response.read()
                check(path, 200, response.headers["Content-Type"], body)
                assert ("ETag" in response.headers) == ("304" in responses(path))


@pytest.mark.parametrize("path", [path for path in REQUESTS if path not in ("/api/v1/routes", "/api/v1/stops")])
def test_a_map_without_records_answers_as_the_document_says(path: str) -> None:
    status, headers, body = answer(path.replace("{cell}", CELLS[0]), feed())
    check(path, status, headers["Content-Type"], body)


@pytest.mark.parametrize(("path", "query", "status"), WRONG)
def test_every_error_is_as_the_document_says(path: str, query: str, status: int) -> None:
    found, headers, body = answer(path.replace("{cell}", CELLS[0]) + query, made())
    assert found == status
    check(path, status, headers["Content-Type"], body)


def test_a_wrong_response_would_be_noticed() -> None:
    body = json.loads(answer("/api/v1/latest", made())[2])
    schema = responses("/api/v1/latest")["200"]["content"][JSON]["schema"]
    assert validator(schema).is_valid(body)
    assert not validator(schema).is_valid(body | {"slot": "09:00"})
    assert not validator(schema).is_valid(body | {"releases": [body["releases"][0] | {"cell": "x"}]})
    assert not validator(schema).is_valid({name: body[name] for name in body if name != "budget"})


@pytest.mark.parametrize("path", REQUESTS)
def test_the_parameters_are_those_that_the_server_takes(path: str) -> None:
    said = json.loads(answer(path.replace("{cell}", CELLS[0]) + "?x=1", made())[2])["error"]
    allowed = re.fullmatch(r"unknown parameter: (?:allowed are (.*)|none is allowed here)", said)
    assert allowed is not None
    listed = [each["name"] for each in DOCUMENT["paths"][path]["get"]["parameters"] if each["in"] == "query"]
    assert [*filter(None, (allowed[1] or "").split(", "))] == listed


def test_the_document_names_no_policy_and_no_cell() -> None:
    assert STORED
    assert not any(cell in json.dumps(DOCUMENT) for cell in CELLS)
