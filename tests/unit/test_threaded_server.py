"""`/metrics` of a process that has no event loop of its own."""

import socket
import threading
import urllib.request

import pytest
from structlog.testing import capture_logs

from hatcast.agents.config.tables import Address
from hatcast.agents.monitoring.declarations import Process
from hatcast.agents.monitoring.server import serve_in_thread
from hatcast.stream.errors import HatcastError


def test_a_process_without_an_event_loop_serves_its_figures_until_it_ends() -> None:
    before = threading.active_count()
    with capture_logs() as logs, serve_in_thread(Address("127.0.0.1", 0), Process.BRIDGE, "--metrics-listen"):
        where = next(line["address"] for line in logs if line["event"] == "serving metrics and health checks")
        with urllib.request.urlopen(f"http://{where}/readyz", timeout=30.0) as answer:
            assert answer.read() == b'{"ready":true,"parts":{"bridge":"ok"}}'
        with urllib.request.urlopen(f"http://{where}/metrics", timeout=30.0) as answer:
            assert b"hatcast_bridge_readings_total" in answer.read()
    assert threading.active_count() == before


def test_an_address_that_is_taken_ends_the_process_before_it_begins() -> None:
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with (
            pytest.raises(HatcastError, match=r"--metrics-listen: cannot listen on "),
            serve_in_thread(address, Process.BRIDGE, "--metrics-listen"),
        ):
            pytest.fail("it began")
    assert threading.active_count() == before
