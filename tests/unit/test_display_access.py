"""Which pages of other origins may read the API or frame the map: by default none."""

import asyncio
import re
from typing import Any

import pytest

from hatcast.agents.config.tables import parse_origins
from hatcast.agents.map.rendering import AwaitedReleases
from hatcast.agents.map.server import HEADERS, Access, application
from hatcast.stream.errors import SettingError
from tests.displaying import SETTINGS, feed, release, served

CITY, OTHER = "https://city.example", "https://other.example:8443"
PREFLIGHT = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "if-none-match"}


def response(
    access: Access | None, path: str = "/api/v1/latest", method: str = "GET", **headers: str
) -> tuple[int, Any]:
    """Status and headers of a response."""
    found: list[Any] = []

    async def run() -> None:
        async with (
            served(feed([release(0)]), access=access) as (url, client),
            client.request(method, url + path, headers=headers) as got,
        ):
            found.extend((got.status, got.headers))

    asyncio.run(run())
    return found[0], found[1]


def test_by_default_no_page_of_another_origin_reads_or_frames() -> None:
    status, headers = response(None, Origin=CITY)
    assert status == 200
    assert not [name for name in headers if name.lower().startswith("access-control")]
    assert headers["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "Origin" not in headers["Vary"]
    assert response(None, method="OPTIONS", Origin=CITY, **PREFLIGHT)[0] == 405


def test_a_listed_origin_reads_the_api_and_no_other() -> None:
    access = Access((CITY, OTHER))
    for origin in (CITY, OTHER):
        status, headers = response(access, Origin=origin)
        assert (status, headers["Access-Control-Allow-Origin"]) == (200, origin)
        assert headers["Access-Control-Expose-Headers"] == "ETag, Retry-After"
        assert "Access-Control-Allow-Credentials" not in headers
        assert headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    for origin in ("https://city.example.evil.example", "http://city.example", "null", ""):
        headers = response(access, Origin=origin)[1]
        assert "Access-Control-Allow-Origin" not in headers
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Vary"] == "Accept, Accept-Encoding, Origin"


def test_caches_know_that_a_listed_origin_decides() -> None:
    access = Access((CITY,))
    tag = response(access)[1]["ETag"]
    for path in ("/api/v1/latest", "/api/v1/slots", "/api/v1/latest?format=csv"):
        assert response(access, path)[1]["Vary"].endswith(", Origin")
    status, headers = response(access, Origin=CITY, **{"If-None-Match": tag})
    assert (status, headers["Access-Control-Allow-Origin"]) == (304, CITY)
    assert headers["Vary"].endswith(", Origin")
    assert response(access, "/api/v1/status")[1]["Vary"] == "Origin"


def test_every_origin_may_be_allowed() -> None:
    access = Access(("*",))
    for headers in (response(access)[1], response(access, Origin="https://anywhere.example")[1]):
        assert headers["Access-Control-Allow-Origin"] == "*"
        assert headers["Cross-Origin-Resource-Policy"] == "cross-origin"
        assert "Origin" not in headers["Vary"]


@pytest.mark.parametrize("access", [Access((CITY,)), Access(("*",))])
def test_a_preflight_request_is_answered_for_the_api_only(access: Access) -> None:
    for path in ("/api/v1/latest", "/api/v1/events", "/api/v1/cells/87608b0d2ffffff"):
        status, headers = response(access, path, "OPTIONS", Origin=CITY, **PREFLIGHT)
        assert (status, headers["Access-Control-Allow-Origin"] in (CITY, "*")) == (204, True)
        assert headers["Access-Control-Allow-Methods"] == "GET, HEAD"
        assert "If-None-Match" in headers["Access-Control-Allow-Headers"]
    assert response(access, "/", "OPTIONS", Origin=CITY, **PREFLIGHT)[0] == 405
    assert "Access-Control-Allow-Origin" not in response(access, "/", Origin=CITY)[1]
    assert response(access, method="POST", Origin=CITY)[0] == 405


def test_errors_and_streams_can_be_read_too() -> None:
    access = Access((CITY,))
    status, headers = response(access, "/api/v1/latest?slot=9", Origin=CITY)
    assert (status, headers["Access-Control-Allow-Origin"]) == (400, CITY)
    status, headers = response(access, "/api/v1/events", Origin=CITY)
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, CITY)


@pytest.mark.parametrize(("frames", "policy"), [((CITY, OTHER), f"{CITY} {OTHER}"), (("*",), "*")])
def test_a_listed_origin_frames_the_map(frames: tuple[str, ...], policy: str) -> None:
    headers = response(Access(frames=frames), "/")[1]
    directives = [each.strip() for each in headers["Content-Security-Policy"].split(";")]
    assert f"frame-ancestors {policy}" in directives
    assert "X-Frame-Options" not in headers
    kept = HEADERS["Content-Security-Policy"].split(";")
    assert directives[:-1] == [each.strip() for each in kept][:-1]


@pytest.mark.parametrize(
    "origin",
    [
        "https://city.example/",
        "https://City.example",
        "https://city.example:443",
        "http://city.example:80",
        "city.example",
        "https://*.city.example;script-src",
        "https://city.example/map",
        "https://user@city.example",
        "ftp://city.example",
        "https://",
        "null",
        "",
        "https://city.example; script-src *",
    ],
)
def test_what_is_not_an_origin_is_one_line(origin: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_origins((origin,), "display.allow_origins")
    assert "is not an origin; write scheme and host" in str(caught.value)


def test_origins_are_those_that_browsers_send() -> None:
    listed = (CITY, OTHER, "http://localhost:3000", "http://[::1]:3000", "http://127.0.0.1")
    assert parse_origins(listed, "display.allow_origins") == listed
    assert parse_origins(("*",), "display.allow_framing") == ("*",)
    with pytest.raises(SettingError, match='is any origin already; write \\["\\*"\\] alone'):
        parse_origins(("*", CITY), "display.allow_framing")


def routes() -> list[str]:
    """A path for every route of the map, whatever it is asked for."""
    app = application(feed([release(0)]), "A city", AwaitedReleases(SETTINGS))
    return sorted({re.sub(r"\{\w+(:[^}]*)?\}", "x", each.canonical) for each in app.router.resources()})


@pytest.mark.parametrize("path", routes())
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_every_route_has_the_headers_and_no_cookie_and_asks_for_tls_only_behind_tls(path: str, method: str) -> None:
    plain = response(None, path, method)[1]
    behind = response(None, path, method, **{"X-Forwarded-Proto": "https"})[1]
    for headers in (plain, behind):
        assert {name: headers[name] for name in HEADERS} == HEADERS
        assert "Set-Cookie" not in headers
    assert "Strict-Transport-Security" not in plain
    assert behind["Strict-Transport-Security"] == "max-age=31536000"


def test_the_policy_allows_no_script_or_style_that_is_not_a_file_of_the_map() -> None:
    directives = dict(each.strip().split(" ", 1) for each in HEADERS["Content-Security-Policy"].split(";"))
    assert not re.search(r"unsafe-|\*|https?:|data:|blob:", HEADERS["Content-Security-Policy"])
    assert directives["default-src"] == directives["base-uri"] == directives["form-action"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == "'self'"
    assert HEADERS["X-Content-Type-Options"] == "nosniff"
    assert HEADERS["Referrer-Policy"] == "no-referrer"
