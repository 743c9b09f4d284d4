"""The file of `worker.report_keys_file`, and what a worker or a device that cannot use its keys does."""

import sys
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from hatcast.agents.cli import keys, worker
from hatcast.agents.config.settings import parse_settings
from hatcast.agents.device.run import DeviceOptions, open_device
from hatcast.agents.doctor.checks import Check, CheckState
from hatcast.agents.doctor.preflight import examine
from hatcast.stream.errors import HatcastError
from hatcast.stream.hybrid.reports import DayKey, parse_report_keys
from hatcast.stream.hybrid.signatures import public_key
from tests.devices import policy_table
from tests.signing import AUTHORITY

CONFIG = """
[worker]
report_keys_file = "keys"
[policy]
name = "test"
upper_bound = 65.0
timezone = "UTC"
hours = [0, 24]
privacy = {epsilon = 1.0, max_hats_per_day = 2, daily_limit = 105.0, min_users = 3}
estimator = {name = "pwh"}
"""


def start_worker(folder: Path, lines: str) -> str:
    """Start a worker that cannot reach any service; return its error."""
    (folder / "keys").write_text(lines)
    (folder / "hatcast.toml").write_text(CONFIG)
    error = CliRunner().invoke(worker.command, ["--config", str(folder / "hatcast.toml")]).exception
    assert isinstance(error, HatcastError)
    assert "\n" not in str(error)
    return str(error)


def examined(folder: Path) -> Check:
    """What `hatcast doctor` finds about the keys, before it asks any service."""
    _, check, *_ = islice(examine(folder / "hatcast.toml"), 2)
    assert check.name == "report keys"
    return check


def test_without_the_extra_what_would_check_or_sign_does_not_start_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nacl", None)
    said = "needs nacl, which is not installed: run  pip install 'hatcast[signed]'"
    assert start_worker(tmp_path, "authority " + "1" * 64) == f"worker.report_keys_file {said}"
    assert examined(tmp_path) == Check(
        "report keys", CheckState.PROBLEM, "not usable", f"worker.report_keys_file {said}"
    )
    done = CliRunner().invoke(keys.command, ["authority", str(tmp_path / "authority.key")])
    assert str(done.exception) == f"keys {said}"
    settings = parse_settings({"policy": policy_table()}, tmp_path, {})
    with (
        pytest.raises(HatcastError, match=r"^--sign needs nacl"),
        open_device(settings, DeviceOptions(tmp_path / "state.db", with_signatures=True), live=False, partitions=1),
    ):
        raise AssertionError("it was opened")


def test_a_worker_does_not_start_with_a_key_that_cannot_be_a_public_key_and_never_shows_it(tmp_path: Path) -> None:
    """Such as a mistyped one, and nearly every secret one."""
    good, bad = f"authority {public_key(AUTHORITY).hex()}\n", "0" * 62 + "02"
    for lines in (f"authority {bad}\n", f"{good}revoked {bad}\n"):
        said = start_worker(tmp_path, lines)
        assert "worker.report_keys_file: a key in it cannot be a public key" in said
        assert bad not in said
        assert examined(tmp_path) == Check("report keys", CheckState.PROBLEM, "not usable", said)
    (tmp_path / "keys").write_text(good)
    assert examined(tmp_path) == Check("report keys", CheckState.OK, "authorities 1, revoked 0")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no line names an authority"),
        ("# only a comment\nrevoked " + "0" * 64, "no line names an authority"),
        ("authority " + "0" * 62, "line 1 is not"),
        ("authority " + "F" * 64, "line 1 is not"),
        (f"authority {'0' * 64}\nrevokd {'0' * 64}", "line 2 is not"),
        (f"authority {'0' * 64} {'0' * 64}", "line 1 is not"),
        (f"authority {'0' * 64}\nrevoked {'0' * 64}", "an authority is revoked too"),
    ],
)
def test_a_file_of_report_keys_that_is_wrong_names_its_line(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        parse_report_keys(text)
    (tmp_path / "keys").write_text(text)
    table = {"policy": policy_table(), "worker": {"report_keys_file": "keys"}}
    with pytest.raises(HatcastError, match=rf"worker.report_keys_file: .*{says}"):
        parse_settings(table, tmp_path, {})


def test_a_file_of_report_keys_that_is_missing_is_one_line(tmp_path: Path) -> None:
    table = {"policy": policy_table(), "worker": {"report_keys_file": "missing"}}
    with pytest.raises(HatcastError, match=r"worker.report_keys_file: .*missing cannot be read"):
        parse_settings(table, tmp_path, {})


def test_comments_and_empty_lines_of_report_keys_are_ignored() -> None:
    found = parse_report_keys(f"# ours\n\nauthority {'0' * 64}  # until May\nrevoked {'1' * 64}\n")
    assert found.authorities == {bytes(32)}
    assert found.revoked == {b"\x11" * 32}


def test_no_text_of_a_day_key_has_its_secret() -> None:
    key = DayKey(bytes(range(32)), b"certificate")
    assert "seed" not in repr(key)
    assert repr(bytes(range(32))) not in f"{key} {key!r} {[key]}"


def test_a_device_that_has_to_sign_and_cannot_ends_at_its_start(tmp_path: Path) -> None:
    settings = parse_settings({"policy": policy_table()}, tmp_path, {})
    options = DeviceOptions(tmp_path / "empty.db", with_signatures=True)
    with (
        pytest.raises(HatcastError, match="no certified key: run `hatcast keys request`"),
        open_device(settings, options, live=False, partitions=1),
    ):
        raise AssertionError("it was opened")
