"""The map of a ledger as one file, opened from the disk by a browser without a network."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from hatcast.agents.batch.ledger_map import page_of_ledger
from tests.browser.accessibility import serious_problems
from tests.browser.conftest import OpenPage, picture
from tests.browser.saved import saved
from tests.stored_map import ledger_in
from tests.unit.test_map_of_ledger import published


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, object]]]:
    """The page, and the records in it. A number is the text that stands in the record."""
    folder = tmp_path_factory.mktemp("made")
    ledger = ledger_in(folder)
    (folder / "map.html").write_bytes(page_of_ledger(*ledger))
    return folder / "map.html", [json.loads(each, parse_float=str) for each in published(*ledger)]


def offline(made: tuple[Path, object], open_page: OpenPage, query: str = "") -> Page:
    url = made[0].as_uri()
    return open_page(url + query, within=url, offline=True)


def test_the_file_shows_the_records_of_every_hour_without_a_network(
    made: tuple[Path, list[dict[str, object]]], open_page: OpenPage
) -> None:
    page = offline(made, open_page)
    expect(page.locator("#slot-title")).to_contain_text("Tue 4 Jan 2022, 13:00–14:00")
    picture(page, "one_file")
    page.locator("#slot").focus()
    page.keyboard.press("Home")
    expect(page.locator("#slot-title")).to_contain_text("Sun 2 Jan 2022, 12:00–13:00")
    page.click("#show-table")
    for kind, name, value in (("estimates", "estimate_id", "road"), ("releases", "release_id", "mean")):
        page.click(f"#show-{kind}")
        rows = page.locator("table.all tbody tr")
        expect(rows).to_have_count(2)
        for record in made[1]:
            if record.get(name) == f"test/2022-01-02T12:00/{record['cell']}":
                found = record[value]
                row = rows.filter(has=page.locator(f"button[data-cell='{record['cell']}']"))
                expect(row).to_contain_text(str(found["value"] if isinstance(found, dict) else found))
    assert serious_problems(page) == []


def test_a_hexagon_has_its_history_running_means_and_answers_and_its_link_opens_it_again(
    made: tuple[Path, list[dict[str, object]]], open_page: OpenPage
) -> None:
    cell = made[1][0]["cell"]
    page = offline(made, open_page, f"?hour=2022-01-02T13:00&cell={cell}")
    expect(page.locator("#slot-title")).to_contain_text("Sun 2 Jan 2022, 13:00–14:00")
    card = page.locator("#cell-body")
    expect(card.locator("details.list tbody tr")).to_have_count(6)
    expect(card.locator("#cell-answers")).to_contain_text("2 Jan 2022 to 3 Jan 2022")
    expect(card).to_contain_text("Midday")  # the running mean of a part of the day
    page.click("#show-releases")
    page.wait_for_function("() => location.href.includes('show=releases')")  # a string is against the page's policy
    again = offline(made, open_page, page.evaluate("location.search"))
    expect(again.locator("#show-releases")).to_have_attribute("aria-pressed", "true")
    expect(again.locator("#cell-body")).to_contain_text(str(cell))


def test_what_only_a_server_can_do_is_not_offered_and_the_records_are_saved_as_published(
    made: tuple[Path, list[dict[str, object]]], open_page: OpenPage, tmp_path: Path
) -> None:
    page = offline(made, open_page)
    expect(page.locator("#connection")).to_be_hidden()
    with page.expect_download() as download:
        page.click("#open-releases")
    path = tmp_path / "latest.json"
    download.value.save_as(path)
    latest = {"test/2022-01-04T13:00"}
    records = json.loads(path.read_text(), parse_float=str)["releases"]
    assert {each["release_id"].rpartition("/")[0] for each in records} == latest
    assert [each for each in records if each not in made[1]] == []
    page.click("#share summary")
    for what in ("#save-csv", "#save-geojson"):
        expect(page.locator(what)).to_be_hidden()
    page.click("#share summary")
    assert saved(page, "#save-png", tmp_path).read_bytes().startswith(b"\x89PNG")
