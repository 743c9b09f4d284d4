"""Inputs as people have them, read by `hatcast batch`: policies, the command, and what became of the records."""

import json
from pathlib import Path
from typing import Any, Final

from click.testing import Result

from hatcast.agents.config.settings import load_settings
from hatcast.stream.policy.policy import Policy
from tests.invoked import run
from tests.services.data import DATA

WILD: Final = DATA / "wild"
HEADER: Final = "vehicle,time,lat,lon,speed_kmh\n"
CONFIG: Final = """
[topics]
telemetry_retention = "none"
[policy]
name = "wild"
timezone = "{zone}"
hours = [0, 24]
{more}
[policy.privacy]
epsilon = 1.0
max_hats_per_day = 10
daily_limit = 10.0
{privacy}
[policy.estimator]
name = "{estimator}"
"""


def config(
    folder: Path, zone: str = "UTC", more: str = "upper_bound = 65.0", privacy: str = "", estimator: str = "baseline"
) -> Path:
    """Write a configuration with this policy."""
    path = folder / "wild.toml"
    path.write_text(CONFIG.format(zone=zone, more=more, privacy=privacy, estimator=estimator))
    return path


def policy_in(path: Path) -> Policy:
    return load_settings(path).policy


def batch(config: Path, file: Path, *options: object) -> Result:
    done = run("batch", file, *options, "--config", config, "--contributions", "--json")
    assert done.exit_code == 0, done.output
    return done


def outcomes(done: Result) -> Any:
    return json.loads(done.stdout)["outcomes"]


def slots(done: Result) -> list[str]:
    return sorted(hat.partition("/")[2] for hat in json.loads(done.stdout)["hats"])


def rows(folder: Path, *lines: str, header: str = HEADER) -> Path:
    """Write a CSV file of these lines."""
    path = folder / "rows.csv"
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return path
