"""Metrics: what is declared, how it is counted, and the address where operators find it."""

import re
from collections import Counter as Tally
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from hatcast.agents.config.tables import Address, parse_address
from hatcast.agents.monitoring import declarations as declared
from hatcast.agents.monitoring.declarations import (
    BEHIND,
    METRICS,
    POLICY_INFO,
    Label,
    Metric,
    Process,
    counter,
    gauge,
    histogram,
)
from hatcast.agents.monitoring.meters import Meters
from hatcast.agents.monitoring.server import OperatorServer
from hatcast.stream.errors import HatcastError
from hatcast.stream.records.fields import Status
from tests.exposed import families, figures, undeclared
from tools.metrics_page import PAGE, render_page

ROOT = Path(__file__).parents[2]
TRIES = counter("hatcast_tries_total", "Tries.", (Label("result", ("good", "bad")),))
WARMTH = gauge("hatcast_warmth_ratio", "Warmth.")
PLACES = gauge("hatcast_places", "Places.", (Label("partition"),))
TIME = histogram("hatcast_time_seconds", "Time.", buckets=(0.1, 1.0))
# The only labels with any number of values: none of them tells of a vehicle or a cell.
OPEN_LABELS = {"partition", "version", "process", "policy", "policy_id"}

every_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


@every_metric
def test_every_name_is_prometheus_own_style(metric: Metric[Any]) -> None:
    assert re.fullmatch("hatcast(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Counter)
    assert not re.search("milli|_ms|minutes|percent|kilo", metric.name)
    if metric.kind is Histogram:
        assert metric.name.endswith("_seconds")
        assert list(metric.buckets) == sorted(metric.buckets)


@every_metric
def test_every_metric_says_what_it_is_and_who_counts_it(metric: Metric[Any]) -> None:
    assert metric.text.endswith(".")
    assert "|" not in metric.text
    assert metric.processes


@every_metric
def test_no_label_is_of_a_cell_or_a_vehicle(metric: Metric[Any]) -> None:
    for label in metric.labels:
        assert label.values or label.name in OPEN_LABELS
        assert not {"cell", "hat", "vehicle", "user", "slot", "mean"} & set(label.name.split("_"))
    assert not re.search("vehicle|cell|_mean", metric.name)


def test_every_name_is_declared_once() -> None:
    assert max(Tally(metric.name for metric in METRICS).values()) == 1


@every_metric
def test_every_metric_is_counted_somewhere(metric: Metric[Any]) -> None:
    sources = [path.read_text() for path in (ROOT / "agents").rglob("*.py") if path.name != "declarations.py"]
    users = [source for source in sources if "hatcast.agents.monitoring" in source]
    built = {process for process in Process if any(re.search(rf"Process\.{process.name}\b", each) for each in users)}
    constant = next(name for name, value in vars(declared).items() if value is metric)
    counted = any(re.search(rf"\b{constant}\b", source) for source in users)
    assert counted or metric is declared.BUILD_INFO or not built & set(metric.processes)


def test_the_page_of_the_documentation_is_that_of_the_declaration() -> None:
    assert PAGE.read_text() == render_page(), "run python -m tools.metrics_page"
    assert all(f"| `{metric.name}` |" in render_page() for metric in METRICS)


def test_the_statuses_are_those_of_releases() -> None:
    assert set(declared.STATUS.values) == {status.value for status in Status}


def test_counters_and_histograms_are_there_before_they_are_counted_and_gauges_are_not() -> None:
    meters = Meters()
    meters.expose(Process.WORKER)
    page = meters.render()[0].decode()
    counted = {each.name for each in METRICS if Process.WORKER in each.processes and each.kind is not Gauge}
    assert families(page) == counted | {"hatcast_build_info"}
    assert set(figures(page, "hatcast_checkpoints_total")) == {("stored",), ("refused",), ("failed",)}
    assert not undeclared(page, Process.WORKER)
    assert "process_resident_memory_bytes" in page


def test_what_is_counted_is_on_the_page() -> None:
    meters = Meters()
    meters.count(TRIES, 2, result="bad")
    meters.count(TRIES, result="bad")
    meters.set(WARMTH, 0.5)
    meters.observe(TIME, 0.5)
    with meters.timed(TIME):
        pass
    page = meters.render()[0].decode()
    assert figures(page, "hatcast_tries_total") == {("good",): 0, ("bad",): 3}
    assert figures(page, "hatcast_warmth_ratio") == {(): 0.5}
    assert figures(page, "hatcast_time_seconds_bucket") == {("0.1",): 1, ("1.0",): 2, ("+Inf",): 2}


def test_every_figure_of_a_worker_names_its_policy_and_those_of_the_client_library_do_not() -> None:
    meters = Meters()
    meters.expose(Process.WORKER)
    meters.register(BEHIND, lambda: {("0",): 1.0})
    meters.set(POLICY_INFO, 1, policy="city", policy_id="b2:1")
    assert "policy=" not in meters.render()[0].decode().replace("hatcast_policy_info{policy=", "")
    meters.set_policy("city")
    shown = [*text_string_to_metric_families(meters.render()[0].decode())]
    own = [sample for family in shown if family.name.startswith("hatcast_") for sample in family.samples]
    assert len(own) > 50
    assert {sample.labels["policy"] for sample in own} == {"city"}
    assert not any("policy" in each.labels for family in shown for each in family.samples if each not in own)
    (behind,) = [sample for sample in own if sample.name == BEHIND.name]
    assert behind.labels == {"partition": "0", "policy": "city"}
    assert behind.value == 1.0


def test_a_label_that_is_not_declared_is_refused_so_that_no_vehicle_can_become_one() -> None:
    meters = Meters()
    for labels in ({"result": "GJ05BX1234"}, {}, {"result": "good", "vehicle": "GJ05BX1234"}):
        with pytest.raises(ValueError, match="hatcast_tries_total"):
            meters.count(TRIES, 1, **labels)
    assert b"GJ05BX1234" not in meters.render()[0]


def test_what_is_read_is_asked_for_whenever_the_page_is() -> None:
    meters = Meters()
    known: dict[tuple[str, ...], float] = {("0",): 1.0}
    meters.register(PLACES, lambda: known)
    assert figures(meters.render()[0].decode(), "hatcast_places") == {("0",): 1.0}
    known.clear()
    known["3",] = 7.0
    assert figures(meters.render()[0].decode(), "hatcast_places") == {("3",): 7.0}
    meters.unregister_all()
    assert "hatcast_places" not in meters.render()[0].decode()


async def _asked(parts: Mapping[str, str], path: str, accept: str = "") -> tuple[int, str, str]:
    with capture_logs() as logs:
        server = OperatorServer(Address("127.0.0.1", 0), Process.BRIDGE, lambda: parts)
        await server.start()
    try:
        where = next(str(line["address"]) for line in logs if line["event"] == "serving metrics and health checks")
        async with ClientSession() as session, session.get(f"http://{where}{path}", headers={"Accept": accept}) as got:
            return got.status, got.headers["Content-Type"], await got.text()
    finally:
        await server.stop()


async def test_a_process_serves_its_figures_and_whether_it_is_alive_and_ready() -> None:
    status, kind, page = await _asked({}, "/metrics")
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert any(line.startswith("hatcast_bridge_readings_total ") for line in page.splitlines())
    assert (await _asked({}, "/livez"))[0::2] == (200, '{"alive":true}')
    assert (await _asked({"source": "ok"}, "/readyz"))[0::2] == (200, '{"ready":true,"parts":{"source":"ok"}}')
    away = {"source": "no answer for 7 s"}
    assert (await _asked(away, "/readyz"))[0::2] == (
        503,
        '{"ready":false,"parts":{"source":"no answer for 7 s"}}',
    )


async def test_a_scraper_that_asks_for_openmetrics_gets_it() -> None:
    status, kind, page = await _asked({}, "/metrics", "application/openmetrics-text")
    assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
    assert page.endswith("# EOF\n")


async def test_an_address_that_cannot_be_had_is_refused_by_the_name_of_its_setting() -> None:
    with pytest.raises(HatcastError, match=r"--metrics-listen: cannot listen on 192\.0\.2\.1:1"):
        here: Any = Address("192.0.2.1", 1)  # nobody's
        await OperatorServer(here, Process.BRIDGE, dict, "--metrics-listen").start()


def test_an_address_says_where_to_listen() -> None:
    assert parse_address("127.0.0.1:9465", "x") == Address("127.0.0.1", 9465)
    with pytest.raises(HatcastError, match="9465"):
        parse_address("9465", "x")
