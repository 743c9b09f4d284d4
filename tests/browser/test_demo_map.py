"""The map of `scripts/demo`, as a newcomer sees it."""

from playwright.sync_api import Browser, expect

from hatcast.agents.demo.defaults import VEHICLES
from tests.browser.conftest import OpenPage, picture
from tests.browser.demo import Demo, wait_for
from tests.displaying import values_of

FIRST_CELL_S = 60.0


def test_the_first_cell_is_on_the_map_within_a_minute_and_is_what_the_api_says(demo: Demo, open_page: OpenPage) -> None:
    page = open_page(f"{demo.url}?show=releases", within=demo.url, bodies=demo.bodies)
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    assert demo.first_cell_s < FIRST_CELL_S, demo.first_cell_s
    expect(page.locator("#slot")).to_be_enabled()  # there are two hours
    page.locator("#slot").focus()
    page.keyboard.press("Home")  # an hour that stays as it is
    expect(page.locator("#slot-title")).to_contain_text("08:00–09:00")
    page.wait_for_selector("path.cell[data-status=released]")
    date = values_of(demo.get("/api/v1/slots"))["slots"][0]["slot"]
    records = {each["cell"]: each for each in values_of(demo.get(f"/api/v1/latest?slot={date}"))["releases"]}
    shown = page.locator("path.cell[data-status=released]")
    for path in shown.all():
        assert path.get_attribute("data-mean") == records[path.get_attribute("data-cell") or ""]["mean"]
    page.click("#follow")
    page.click("#show-estimates")
    expect(page.locator("#legend-title")).to_have_text("Mean speed while moving, km/h")
    picture(page, "demo")


def test_estimates_are_on_the_demos_map_without_a_choice(demo: Demo, open_page: OpenPage) -> None:
    page = open_page(demo.url, bodies=demo.bodies)
    expect(page.locator("#show-estimates")).to_have_attribute("aria-pressed", "true")
    estimates = {each["cell"]: each for each in values_of(demo.get("/api/v1/estimates"))["estimates"]}
    shown = set(page.locator("path.cell[data-mean]").evaluate_all("all => all.map((each) => each.dataset.cell)"))
    assert shown == estimates.keys()


def test_a_running_mean_is_on_the_demos_map(demo: Demo, open_page: OpenPage) -> None:
    wait_for(lambda: bool(values_of(demo.get("/api/v1/running"))["running"]), demo)
    page = open_page(demo.url, bodies=demo.bodies)
    page.get_by_label("Hours", exact=True).select_option("Today so far")
    expect(page.locator("#legend-title")).to_have_text("Mean speed while moving: today so far, km/h")
    path = page.locator("path.cell:not([data-mean=''])").first
    expect(path).to_be_attached()
    cells = {each["cell"] for each in values_of(demo.get("/api/v1/running?name=today"))["running"] if "mean" in each}
    assert path.get_attribute("data-cell") in cells
    path.click()
    expect(page.locator("#cell-running tbody tr")).to_contain_text(["Today so far", "The last 24 hours"])
    picture(page, "demo_running")


def test_the_legend_has_no_scale_before_there_is_data(demo: Demo, browser: Browser) -> None:
    with browser.new_page() as page:
        page.route("**/api/**", lambda route: route.abort())
        page.goto(demo.url)
        expect(page.locator("#connection")).not_to_have_attribute("data-state", "live")
        expect(page.locator("#legend")).to_have_text("The colours and what they mean come with the first hour.")


def test_nothing_that_a_demo_lets_out_names_a_vehicle(demo: Demo, open_page: OpenPage) -> None:
    page = open_page(f"{demo.url}?show=releases", within=demo.url, bodies=demo.bodies)
    wait_for(lambda: len(values_of(demo.get("/api/v1/slots"))["slots"]) >= 2, demo)
    cell = page.locator("path.cell[data-status=released]").first.get_attribute("data-cell")
    for path in ("/", f"/api/v1/cells/{cell}", "/api/v1/latest", "/api/v1/estimates", "/livez", "/readyz"):
        demo.get(path)
    demo.listen(30)
    page.click("#show-table")
    demo.bodies.append(page.content().encode())
    told = b"\n".join(demo.told())
    assert cell is not None
    assert cell.encode() in told
    assert b"worker started" in told or b"assigned" in told, "the worker's log is looked through too"
    ids = [f"BUS-{number + 1:04d}".encode() for number in range(VEHICLES)]
    assert [each for each in ids if each in told] == []
