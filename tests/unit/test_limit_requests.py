"""`hatcast query`: limits that no request can have, and records of the registry that no request has written."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from hatcast.agents.cli import device, query
from hatcast.agents.kafka.registry import LimitRequest, read_request
from hatcast.lab.cli import cluster
from hatcast.stream.errors import HatcastError

KEY = "request/city/over/2022-01-02"
AT = "2022-01-02T09:00:00.000Z"


@pytest.mark.parametrize("limit", ["nan", "-nan", "inf", "1e999", "-1"])
def test_a_limit_that_is_no_speed_is_wrong_usage(limit: str) -> None:
    done = CliRunner().invoke(query.command, ["over", "--speed-limit", limit])
    assert (done.exit_code, "--speed-limit" in done.output) == (2, True)


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_number_that_is_not_finite_is_wrong_usage_before_anything_is_charged(number: str, tmp_path: Path) -> None:
    live = ["live", "--date", "2022-01-02", "--epsilon", "4", "--state", str(tmp_path / "x.db")]
    done = CliRunner().invoke(cluster.command, [*live, "--round-seconds", number])
    assert (done.exit_code, "--round-seconds" in done.output) == (2, True)
    done = CliRunner().invoke(device.command, ["-", "--cluster-epsilon", number])
    assert (done.exit_code, "--cluster-epsilon" in done.output) == (2, True)


@pytest.mark.parametrize(
    "record",
    [
        {"speed_limit": -1, "decided_at": AT},
        {"speed_limit": 10**400, "decided_at": AT},
        {"speed_limit": 2**53 + 1, "decided_at": AT},
        {"speed_limit": 1.5, "decided_at": AT},
        {"speed_limit": 1, "decided_at": "\u001b[2J"},
        {"speed_limit": 1},
        [],
    ],
)
def test_a_record_that_no_request_has_written_is_one_line_for_whoever_reads_it(record: Any) -> None:
    with pytest.raises(HatcastError, match="cannot be read") as refused:
        read_request({KEY: json.dumps(record).encode()}, KEY)
    assert "\n" not in str(refused.value)


def test_a_request_is_read_as_it_was_written() -> None:
    for limit in (None, 0, 62_500):
        written = LimitRequest(speed_limit=limit, decided_at=AT)
        assert read_request({KEY: msgspec.json.encode(written)}, KEY) == written
