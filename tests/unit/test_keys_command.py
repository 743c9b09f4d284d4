"""`hatcast keys`, and what a device signs with: a certified key a day, of one vehicle, and nothing without one."""

import errno
import stat
from functools import partial
from pathlib import Path

import pytest

from hatcast.agents.device.fold import OwnHat
from hatcast.agents.device.perturbation import Reporter
from hatcast.agents.device.store import DeviceStore, open_store
from hatcast.stream.fold.calendar import Slot
from hatcast.stream.hybrid import decode_report
from hatcast.stream.hybrid.reports import parse_report_keys
from hatcast.stream.hybrid.signatures import ReportVerifier, sign_report
from tests import invoked
from tests.devices import HOUR, NOON, rules_of
from tests.support import Scripted

DAYS = ["2022-01-02", "2022-01-03", "2022-01-04"]


run = partial(invoked.run, "keys")
printed = partial(invoked.printed, "keys")
refusal = partial(invoked.refusal, "keys")


def request(state: Path, devices: int = 1, days: int = len(DAYS)) -> str:
    return printed("request", "--state", state, "--from", DAYS[0], "--days", days, "--devices", devices)


def certified(folder: Path, devices: int = 1) -> tuple[Path, str]:
    """A state file with certified keys for `DAYS`, and the line of the authority."""
    state = folder / "state.db"
    certificates = printed("sign", "--authority", folder / "authority.key", given=request(state, devices))
    assert run("install", "--state", state, given=certificates).stderr == f"{3 * devices} certificates installed\n"
    return state, printed("authority", folder / "authority.key")


@pytest.fixture(autouse=True)
def _authority(tmp_path: Path) -> None:
    printed("authority", tmp_path / "authority.key")


def hat(date: str = DAYS[0], vehicle: str = "bus", cell: int = 0x87608B0D2FFFFFF) -> OwnHat:
    return OwnHat(vehicle, Slot(date, "12:00", NOON, NOON + HOUR, None), cell, 1, 30_000)


def drawn(store: DeviceStore, *hats: OwnHat) -> tuple[list[bytes], Reporter]:
    reporter = Reporter(rules_of(), store, Scripted([7] * len(hats)), sign=sign_report)
    return [each.body for each in reporter.draw(hats, 0)], reporter


def test_a_device_with_certified_keys_sends_what_a_worker_with_the_printed_line_finds_genuine(tmp_path: Path) -> None:
    state, line = certified(tmp_path)
    verifier, ids = ReportVerifier(parse_report_keys(line)), set()
    with open_store(state) as store:
        for day in DAYS:
            bodies, _ = drawn(store, hat(day), hat(day, cell=0x87608B0D3FFFFFF))
            reports = [decode_report(body) for body in bodies]
            assert len(bodies) == 2
            for body, report in zip(bodies, reports, strict=True):
                assert report is not None
                assert verifier.is_genuine(body, report)
                ids.add(report.id)
    assert len(ids) == len(DAYS)  # one a day


def test_keys_of_two_days_and_of_two_devices_have_nothing_in_common(tmp_path: Path) -> None:
    lines = [line for name in "ab" for line in request(tmp_path / name).splitlines()]
    words = [word for line in lines for word in line.split()[1:]]
    assert len(set(words)) == len(lines) == 6
    assert request(tmp_path / "a").splitlines() == lines[:3]  # what was requested is requested again
    seeds = set()
    for name in "ab":
        with open_store(tmp_path / name) as store:
            seeds |= {seed for (seed,) in store._sql.execute("SELECT seed FROM day_keys")}
    assert len(seeds) == 6
    assert not any(seed.hex() in "".join(lines) for seed in seeds)


def test_an_id_does_not_show_how_many_vehicles_have_taken_a_key_before(tmp_path: Path) -> None:
    state, _ = certified(tmp_path, devices=20)
    with open_store(state) as store, store.transaction():
        taken = [store.keys.take(DAYS[0]) for _ in range(21)]
    assert taken.pop() is None
    names = [each for each in taken if each is not None]
    assert len(set(names)) == 20
    assert names not in (sorted(names), sorted(names, reverse=True))


def test_certificates_come_in_the_order_of_their_keys_whatever_the_order_of_the_requests(tmp_path: Path) -> None:
    lines = [line for name in "abc" for line in request(tmp_path / name).splitlines()]
    orders = [lines, lines[::-1], [*lines, *lines]]
    signed = {printed("sign", "--authority", tmp_path / "authority.key", given="\n".join(each)) for each in orders}
    assert len(signed) == 1
    assert [line.rpartition(" ")[0] for line in signed.pop().splitlines()] == sorted(lines)


def test_a_vehicle_without_a_certified_key_is_not_reported_and_draws_nothing(tmp_path: Path) -> None:
    state, _ = certified(tmp_path)
    with open_store(state) as store:
        bodies, reporter = drawn(store, hat(), hat(vehicle="second"), hat("2022-02-01"))
        assert (len(bodies), reporter.tally.reported, reporter.tally.uncertified) == (1, 1, 2)
        assert store.spent("second", DAYS[0]) == (0, 0)


def test_a_fleet_has_a_key_for_each_vehicle_and_a_restart_keeps_it(tmp_path: Path) -> None:
    state, _ = certified(tmp_path, devices=2)
    found = []
    for cell in (0x87608B0D2FFFFFF, 0x87608B0D3FFFFFF):
        with open_store(state) as store:
            bodies, _ = drawn(store, hat(vehicle="a", cell=cell), hat(vehicle="b", cell=cell))
            found.append([report.id for report in map(decode_report, bodies) if report is not None])
    assert found[0] == found[1]
    assert len(set(found[0])) == 2


def test_signing_begins_on_a_date_on_which_nothing_was_reported_unsigned(tmp_path: Path) -> None:
    state, _ = certified(tmp_path)
    with open_store(state) as store:
        assert len(Reporter(rules_of(), store, Scripted([7])).draw([hat()], 0)) == 1
        bodies, reporter = drawn(store, hat(cell=0x87608B0D3FFFFFF), hat(DAYS[1]))
        assert (len(bodies), reporter.tally.uncertified) == (1, 1)


def test_keys_are_deleted_with_the_reports_of_their_date(tmp_path: Path) -> None:
    state, _ = certified(tmp_path)
    with open_store(state) as store:
        store.forget_old("2022-01-06")
        assert store._sql.execute("SELECT DISTINCT date FROM day_keys").fetchall() == [(DAYS[1],), (DAYS[2],)]


def test_nothing_of_a_day_that_is_deleted_stays_in_the_state_file(tmp_path: Path) -> None:
    """Else whoever gets the device later could link its days: by ids and keys that reports had."""
    state, _ = certified(tmp_path)
    with open_store(state) as store:
        for day in DAYS:
            drawn(store, hat(day))
        rows = store._sql.execute("SELECT date, id, key, seed, certificate FROM day_keys").fetchall()
        marks = {date: [name.encode(), key, seed, certificate] for date, name, key, seed, certificate in rows}
        for at, now in ((0, "2022-01-06"), (1, "2022-01-07")):
            assert all(mark in stored_bytes(state) for mark in marks[DAYS[at]])
            store.forget_old(now)
            assert not any(mark in stored_bytes(state) for mark in marks[DAYS[at]])
        assert all(mark in stored_bytes(state) for mark in marks[DAYS[2]])


def stored_bytes(state: Path) -> bytes:
    """The state file and what SQLite has beside it."""
    return b"".join(path.read_bytes() for path in sorted(state.parent.glob(f"{state.name}*")))


def test_the_secret_key_of_an_authority_is_its_owners_only_and_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "authority.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    assert printed("authority", file) == printed("authority", file)
    assert file.read_bytes() == before
    assert before.decode().strip() not in printed("authority", file)


def test_a_secret_key_that_cannot_be_written_leaves_no_file_that_would_be_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "new.key"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        assert "No space left on device" in refusal("authority", file)
    assert not file.exists()
    assert printed("authority", file).startswith("authority ")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("2022-01-02", "line 1 is not `DATE KEY`"),
        ("2022-02-30 " + "0" * 64, "line 1 is not `DATE KEY`"),
        ("2022-01-02 " + "0" * 62, "line 1 is not `DATE KEY`"),
        ("2022-01-02 " + "A" * 64, "line 1 is not `DATE KEY`"),
        (f"2022-01-02 {'0' * 64}\n# all", "line 2 is not `DATE KEY`"),
    ],
)
def test_what_is_no_request_is_not_signed(line: str, says: str, tmp_path: Path) -> None:
    assert says in refusal("sign", "--authority", tmp_path / "authority.key", given=line)


def test_dates_that_no_calendar_has_are_not_requested(tmp_path: Path) -> None:
    asked = ("request", "--state", tmp_path / "state.db", "--from", "9999-12-30", "--days")
    assert len(printed(*asked, 2).splitlines()) == 2
    result = run(*asked, 3)
    assert result.exit_code == 2
    assert "--from and --days reach beyond 9999-12-31" in result.stderr


def test_signing_the_requests_of_one_device_by_themselves_warns_that_they_link_its_days(tmp_path: Path) -> None:
    sign = ("sign", "--authority", tmp_path / "authority.key")
    alone, other, day = request(tmp_path / "a"), request(tmp_path / "b"), request(tmp_path / "c", days=1)
    assert "can link the days of one device" in run(*sign, given=alone).stderr
    for given in (alone + other, day, ""):
        assert "link" not in run(*sign, given=given).stderr


def test_certificates_that_workers_would_refuse_are_not_installed_if_the_device_has_their_keys(tmp_path: Path) -> None:
    state, keys = tmp_path / "state.db", tmp_path / "report-keys"
    requested = request(state)
    ours, theirs = (
        printed("sign", "--authority", tmp_path / name, given=requested)
        for name in ("authority.key", "other.key")
        if printed("authority", tmp_path / name)
    )
    line = printed("authority", tmp_path / "authority.key")
    install = ("install", "--state", state, "--report-keys", keys)
    refused = "the certificate of 2022-01-02 is not by an authority of these report keys"
    keys.write_text(line)
    assert refused in refusal(*install, given=theirs)
    assert refused in refusal(*install, given=theirs.splitlines()[0] + "\n" + ours)
    keys.write_text(f"{line}revoked {requested.split()[3]}\n")
    assert "the certificate of 2022-01-03" in refusal(*install, given=ours)
    with open_store(state) as store:
        assert not store.keys.has_certified()
    keys.write_text(line)
    assert run(*install, given=ours).stderr == "3 certificates installed\n"
    for text, says in (("", "no line names an authority"), ("authority " + "0" * 64, "cannot be a public key")):
        keys.write_text(text)
        assert says in refusal(*install, given=ours)
    keys.write_bytes(b"\xff\xfe")
    assert "it is not text: give the file that the operator's workers read" in refusal(*install, given=ours)


def test_files_that_are_not_keys_are_refused_in_one_line(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("0" * 62)
    assert "not the secret key of an authority" in refusal("authority", other)
    assert "not the secret key of an authority" in refusal("sign", "--authority", tmp_path / "none")
    certificates = printed("sign", "--authority", tmp_path / "authority.key", given=request(tmp_path / "a"))
    assert "has none of the keys in" in refusal("install", "--state", tmp_path / "b", given=certificates)
    assert "line 1 is not `DATE KEY CERTIFICATE`" in refusal("install", "--state", tmp_path / "b", given="x")
    assert "cannot be written" in refusal("authority", tmp_path / "no" / "folder")
