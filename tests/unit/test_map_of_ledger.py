"""The map of a ledger file: as one page, and served. It has what is published, and nothing else of the ledger."""

import base64
import gzip
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner

from hatcast.agents.batch.ledger_days import estimates, ledger_records, running_means
from hatcast.agents.batch.ledger_map import feed_of_ledger, page_of_ledger
from hatcast.agents.cli import hatcast
from hatcast.agents.config.settings import Settings
from hatcast.agents.config.tables import Address
from hatcast.agents.map.events import Hub
from hatcast.agents.map.server import Display
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.vehicles import PSEUDONYM_BYTES
from tests.batching import USERS
from tests.stored_map import EAST, WEST, ledger_in

Stored = tuple[Path, Settings]
_DATA = re.compile(rb'<script type="application/gzip" id="published">([^<]+)</script>')


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return ledger_in(tmp_path_factory.mktemp("stored"))


def unpacked(page: bytes) -> bytes:
    """The data in a page."""
    found = _DATA.search(page)
    assert found is not None
    return gzip.decompress(base64.b64decode(found[1]))


def published(path: Path, settings: Settings) -> list[str]:
    """What a worker would have published of what is in a ledger: the last of each HAT, window and answer."""
    records = ledger_records(path)
    inferred = [*estimates(records, settings.policy), *running_means(records, settings.policy)]
    last = {key_of(json.loads(each)): each.decode() for each in [*records, *inferred]}
    return sorted(last.values())


def key_of(record: dict[str, Any]) -> tuple[str, ...]:
    if "running_id" in record:
        return record["name"], record["cell"]
    return (record.get("estimate_id", ""), record.get("release_id", ""))


def secrets(path: Path) -> Iterator[bytes]:
    """The user key and the pseudonyms in a ledger."""
    database = sqlite3.connect(path)
    yield from (key for (key,) in database.execute("SELECT key FROM user_key"))
    for (vehicles,) in database.execute("SELECT vehicles FROM entered"):
        yield from (vehicles[at : at + PSEUDONYM_BYTES] for at in range(0, len(vehicles), PSEUDONYM_BYTES))
    database.close()


def forms(secret: bytes) -> list[bytes]:
    """Ways to write bytes; of base64 the characters that depend on nothing before or after them."""
    number = int.from_bytes(secret, "big")
    in_text = [
        base64.b64encode(b"\0" * lead + secret)[-(-lead * 8 // 6) : (lead + len(secret)) * 8 // 6] for lead in range(3)
    ]
    assert min(map(len, in_text)) >= 10, "shorter ones would be in a page by chance"
    return [secret, secret.hex().encode(), str(number).encode(), *in_text]


def test_the_page_has_every_published_record_with_its_digits_once(stored: Stored) -> None:
    path, settings = stored
    policies = json.loads(unpacked(page_of_ledger(path, settings)))["policies"]
    records = [each for kind in policies["test"]["records"].values() for each in kind]
    assert sorted(records) == published(path, settings)
    assert {json.loads(each).get("query") for each in records} == {None, "two-days"}
    assert sum("running_id" in each for each in records) == 2 * 2


def test_the_page_holds_no_pseudonym_no_key_and_no_vehicle(stored: Stored) -> None:
    path, settings = stored
    page = page_of_ledger(path, settings)
    hidden = {each for each in secrets(path) if each}
    assert len(hidden) > len(USERS)  # pseudonyms of each date, and a key
    for text in (page, unpacked(page)):
        assert [form for each in hidden for form in forms(each) if form in text] == []
        assert [user for user in USERS if user.encode() in text] == []


def test_all_that_one_bus_can_change_in_the_page_is_in_its_records(stored: Stored, tmp_path: Path) -> None:
    path, settings = stored
    data = json.loads(unpacked(page_of_ledger(path, settings)))
    page = page_of_ledger(path, settings)
    other = page_of_ledger(*ledger_in(tmp_path, [*USERS[1:], "another"], speed=50.0))
    assert _DATA.sub(b"", page) == _DATA.sub(b"", other)
    assert data.keys() == {"first", "policies", "others"}
    assert data["others"] == {"surroundings": '{"timetable":null,"basemap":null}'}
    assert data["policies"]["test"].keys() == {"events", "records"}
    sent = dict.fromkeys(re.findall(r"^event: (.*)$", data["policies"]["test"]["events"], re.MULTILINE))
    assert [*sent] == ["reset", "slots", "release", "estimate", "running", "budget", "ready"]


@pytest.mark.parametrize(("last", "hour"), [((WEST, EAST), "13:00"), ((EAST,), "12:00")])
def test_it_opens_at_the_hour_of_the_last_date_with_most_releases(
    tmp_path: Path, last: tuple[float, ...], hour: str
) -> None:
    page = page_of_ledger(*ledger_in(tmp_path, last=last)).decode()
    assert re.findall(r"<body[^>]*>", page) == [f'<body data-first="?hour=2022-01-04T{hour}">']


def test_the_title_is_text_and_nothing_is_named_that_a_browser_would_fetch(stored: Stored) -> None:
    page = _DATA.sub(b"", page_of_ledger(*stored)).decode()
    assert "<title>Buses &amp; trams</title>" in page
    tags = re.findall(
        r"<(?:link|script|img|iframe)\b[^>]*>", re.sub(r"(<script>|<style[^>]*>).*?</", r"\1</", page, flags=re.S)
    )
    named = [found for tag in tags for found in re.findall(r'(?:src|href)="([^"]+)"', tag)]
    assert named
    assert [each for each in named if not each.startswith("data:")] == []
    assert "default-src 'none'" in page
    assert "{{" not in page[:1_000]


def test_the_command_writes_a_new_file_that_ends_in_html(stored: Stored, tmp_path: Path) -> None:
    path, settings = stored
    config = path.with_name("hatcast.toml")

    def run(*options: object) -> Any:
        return CliRunner(catch_exceptions=False).invoke(hatcast, ["map", *map(str, options), "--config", str(config)])

    done = run(path, "-o", tmp_path / "map.html")
    assert done.stderr.endswith("MB; open it in a browser\n")
    assert unpacked((tmp_path / "map.html").read_bytes()) == unpacked(page_of_ledger(path, settings))
    for name, problem in (("map.html", "exists already"), ("map.pdf", "name a file that ends in .html")):
        with pytest.raises(HatcastError, match=problem):
            run(path, "-o", tmp_path / name)


def test_a_ledger_of_another_policy_is_named_in_one_line(stored: Stored, tmp_path: Path) -> None:
    path, _ = stored
    config = tmp_path / "other.toml"
    config.write_text(path.with_name("hatcast.toml").read_text().replace('"test"', '"other"'))
    with pytest.raises(HatcastError, match="has no policy 'other', but test: name its file with --config"):
        CliRunner(catch_exceptions=False).invoke(
            hatcast, ["map", str(path), "--config", str(config), "-o", str(tmp_path / "map.html")]
        )


async def test_a_served_ledger_answers_as_the_topics_do_and_is_ready(stored: Stored) -> None:
    await served(*stored)


async def served(path: Path, settings: Settings) -> None:
    display = Display(settings, Address("127.0.0.1", 0), stored=lambda hub: feed_of_ledger(path, settings, hub))
    url = f"http://{await display.start()}"
    try:
        async with ClientSession() as client:

            async def get(path: str) -> Any:
                async with client.get(url + path) as answer:
                    assert answer.status == 200
                    return json.loads(await answer.text())

            assert (await get("/readyz"))["ready"]
            latest = await get("/api/v1/latest")
            assert latest["slot"]["slot"] == "2022-01-04T13:00"
            assert len(latest["releases"]) == 2
            assert latest["budget"]["date"] == "2022-01-04"
            assert [each["query"] for each in (await get("/api/v1/queries"))["queries"]] != []
            assert len((await get("/api/v1/running"))["running"]) == 4
            assert (await get("/api/v1/status"))["newest_record_at"] is not None
    finally:
        await display.stop()


def test_a_days_hours_are_all_kept_however_old(stored: Stored) -> None:
    feed = feed_of_ledger(*stored, Hub(0))
    dates = {slot["slot"][:10] for slot in json.loads(feed.slots_view("test"))["slots"]}
    assert dates == {"2022-01-02", "2022-01-03", "2022-01-04"}
