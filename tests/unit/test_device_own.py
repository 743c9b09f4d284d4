"""A device's own means are those of the operator's fold, and its reports those of its means.
How a device's readings were read is fixed in its state file, and compared before it reads any.
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import h3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.agents.batch.fold import FoldJob, fold_recording
from hatcast.agents.batch.retention import RetainTotals
from hatcast.agents.config.settings import Settings, parse_settings
from hatcast.agents.device.fold import OwnHat, OwnMeans, Rules
from hatcast.agents.device.perturbation import Reporter
from hatcast.agents.device.run import DeviceOptions, open_device
from hatcast.agents.device.store import DeviceStore, open_store
from hatcast.agents.recordings import pinned
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.recordings.pinned import Read
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.fold.calendar import Slot
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.hybrid import accepts, decode_report
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.policy import NoiseKind
from hatcast.stream.readings.formats import FORMATS, Columns, FormatChoice, Recorded
from hatcast.stream.readings.reading import READING_RULES, Reading
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms
from tests.devices import EXACT, HOUR, NOON, PRIVACY, policy_of, policy_table, rules_of
from tests.folding import NOW
from tests.other_tzdata import ZONE, use_other_tables
from tests.services import data
from tests.support import Scripted

Records = Sequence[tuple[int, Recorded]]
ZEROS = Scripted(itertools.repeat(0))
FAR = NOON + 30 * 24 * HOUR


def reading(vehicle: str, time: int, lat: float, speed: float) -> Reading:
    return Reading(vehicle, time, lat, 72.8, speed)


def recorded(arrival: int, each: Reading) -> tuple[int, Recorded]:
    return arrival, Recorded(b"", each, arrival)


def means_of(records: Records, rules: Rules) -> dict[str, tuple[int, Fraction]]:
    """`cell/date/slot` -> (devices, sum of their means), by the slots as they come due."""
    own = OwnMeans(rules)
    found: dict[str, tuple[int, Fraction]] = {}

    def close(at: int) -> None:
        for hat in own.close(NOW, at):
            key = f"{hat.cell:x}/{hat.slot.key}"
            devices, total = found.get(key, (0, Fraction(0)))
            found[key] = devices + 1, total + hat.mean

    for arrival, each in records:
        while (due := own.due_ms) is not None and due <= arrival:
            close(due)
        if each.reading is not None:
            own.add(NOW, arrival, each.reading)
    while (due := own.due_ms) is not None:
        close(due)
    return found


def batch_of(records: Records, rules: Rules) -> dict[str, tuple[int, Fraction]]:
    """The same by `batch --contributions` of one vehicle, under the device's own cap and lateness."""
    totals = RetainTotals()
    fold_recording(
        records, FoldJob(rules.own_policy, FoldUsers(Pseudonyms(bytes(KEY_BYTES))), NOW, totals, lambda _: None)
    )
    return {hat: (users, Fraction(total, count)) for hat, (users, count, total, _) in totals.hats.items()}


# Minutes at which a reading is made and arrives, latitude, km/h: two hours, three hexagons, odd values.
readings = st.lists(
    st.tuples(
        st.integers(0, 130),
        st.integers(-3, 8),
        st.sampled_from([21.2, 21.3, 21.4]),
        st.sampled_from([0.0, 5.5, 64, 80]),
    ),
    max_size=40,
)


@given(made=readings, most_hats=st.integers(1, 5), drop_zero=st.booleans())
def test_the_means_of_a_device_are_those_of_batch_over_its_recording(
    *, made: list[tuple[int, int, float, float]], most_hats: int, drop_zero: bool
) -> None:
    rules = rules_of(most_hats, drop_zero=drop_zero, min_interval="2m")
    records = sorted(
        (
            recorded(NOON + (minute + delay) * 60_000, reading("bus", NOON + minute * 60_000, lat, speed))
            for minute, delay, lat, speed in made
        ),
        key=lambda each: each[0],
    )
    assert means_of(records, rules) == batch_of(records, rules)


def test_the_means_of_a_recorded_bus_are_those_of_batch_over_it() -> None:
    rules = rules_of(timezone="America/Chicago", privacy=PRIVACY | {"max_hats_per_day": 26})
    path = data.recording("capmetro/2017-03-21.csv.gz")
    with open_recording([path], FORMATS["capmetro"]) as recording:
        records = list(recording)
    vehicle = next(each.reading.vehicle for _, each in records if each.reading is not None)
    mine = [(at, each) for at, each in records if each.reading is not None and each.reading.vehicle == vehicle]
    found = means_of(mine, rules)
    assert len(found) == 26
    assert found == batch_of(mine, rules)


def draw(store: DeviceStore, rules: Rules, records: Records, noise: SystemNoise | Scripted) -> list[bytes]:
    own, reporter = OwnMeans(rules), Reporter(rules, store, noise)
    for arrival, each in records:
        assert each.reading is not None
        own.add(NOW, arrival, each.reading)
    return [stored.body for stored in reporter.draw(own.close(NOW, FAR), FAR)]


def test_a_report_says_the_mean_and_nothing_else_of_the_bus(tmp_path: Path) -> None:
    rules = rules_of(privacy=EXACT)
    records = [
        recorded(NOON + n, reading("GJ05BX1234", NOON + n * 1000, 21.2, speed))
        for n, speed in enumerate((20.0, 31.0, 99.0))
    ]
    with open_store(tmp_path / "state") as store:
        (body,) = draw(store, rules, records, SystemNoise())
    report = decode_report(body)
    assert report is not None
    assert accepts(report.value, report.epsilon, rules.parameters)
    assert f"{report.value}" == "38.667"  # of 20, 31 and 65
    assert (report.date, report.slot, report.policy_id) == ("2022-01-02", "12:00", rules.policy.policy_id)
    assert b"GJ05BX1234" not in body
    assert b"GJ05BX1234" not in report.id.encode()


@pytest.mark.parametrize("noise", NoiseKind)
def test_the_operator_takes_what_a_device_reports_of_either_noise(noise: NoiseKind, tmp_path: Path) -> None:
    rules = rules_of(estimator={"name": "pwh", "noise": noise.value})
    with open_store(tmp_path / "state") as store:
        (body,) = draw(store, rules, [recorded(NOON, reading("bus", NOON, 21.2, 30.0))], SystemNoise())
    report = decode_report(body)
    assert report is not None
    assert accepts(report.value, report.epsilon, rules.parameters)


days = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 3)), max_size=30)


@given(
    entries=days,
    cap=st.integers(1, 6),
    limit=st.sampled_from([1.0, 1.5, 2.9, 100.0]),
    own=st.none() | st.integers(1, 6),
    cuts=st.sets(st.integers(0, 30)),
)
def test_no_day_has_more_reports_than_cap_limit_and_own_choice_allow_however_often_it_restarts(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[int, int, int]],
    cap: int,
    limit: float,
    own: int | None,
    cuts: set[int],
) -> None:
    """(day, hour, hexagon) of each reading; a restart after some of them forgets all but the state file."""
    rules = rules_of(own, privacy={"epsilon": 0.5, "max_hats_per_day": cap, "daily_limit": limit})
    most = min(cap, int(limit / 0.5), own or cap)
    path = tmp_path_factory.mktemp("state") / "state"
    reported: dict[str, set[tuple[str, str]]] = {}
    with open_store(path) as store:
        means, reporter = OwnMeans(rules), Reporter(rules, store, ZEROS)
        for index, (day, hour, hexagon) in enumerate(sorted(entries)):
            at = NOON + day * 24 * HOUR + hour * HOUR
            bodies = []
            while (due := means.due_ms) is not None and due <= at:
                bodies += [stored.body for stored in reporter.draw(means.close(NOW, due), due)]
            means.add(NOW, at, reading("bus", at, 21.2 + hexagon / 10, 30.0))
            if index in cuts:
                means, reporter = OwnMeans(rules), Reporter(rules, store, ZEROS)
            for report in filter(None, map(decode_report, bodies)):
                places = reported.setdefault(report.date, set())
                assert (report.slot, report.cell) not in places
                places.add((report.slot, report.cell))
    assert all(len(places) <= most for places in reported.values())


def test_the_first_hats_of_a_day_are_kept(tmp_path: Path) -> None:
    rules = rules_of(2)
    records = [recorded(NOON + n, reading("bus", NOON + n, 21.2 + (n % 3) / 10, 30.0)) for n in range(3)]
    with open_store(tmp_path / "state") as store:
        reports = [decode_report(body) for body in draw(store, rules, records, Scripted([0, 0]))]
    cells = [h3.latlng_to_cell(21.2 + n / 10, 72.8, 7) for n in range(2)]
    assert [report.cell for report in reports if report is not None] == cells


@pytest.mark.parametrize("name", ["baseline", "tcm_only", "full_lm"])
def test_a_policy_that_takes_no_reports_is_refused(name: str) -> None:
    policy = policy_of(estimator={"name": name})
    if policy.takes_reports:
        Rules(policy, None)
        return
    with pytest.raises(HatcastError, match="takes no reports"):
        Rules(policy, None)


def test_a_policy_without_time_for_reports_is_refused() -> None:
    with pytest.raises(SettingError, match="lateness"):
        rules_of(lateness="0ms")


JSONL = FormatChoice("jsonl")
FILE = [("rides.csv", b"its digest")]


def settings_of(timezone: str) -> Settings:
    return parse_settings({"policy": policy_table(timezone=timezone)}, Path(), {})


def csv(times_in: str | None = None, vehicle: str = "plate") -> FormatChoice:
    return FormatChoice("csv", Columns({"vehicle": vehicle}, "km/h", times_in=times_in))


def report(state: Path, settings: Settings, choice: FormatChoice, dates: Sequence[str] = ("2022-01-02",)) -> None:
    rules = Rules(settings.policy, None)
    hats = [OwnHat("bus", Slot(date, "12:00", NOON, NOON + HOUR, None), 0x87608B0D2FFFFFF, 1, 1) for date in dates]
    with open_store(state) as store:
        reporter = Reporter(rules, store, SystemNoise(), read=Read.of(choice, FILE, settings))
        assert len(reporter.draw(hats, 0)) == len(dates)


def refusal(state: Path, settings: Settings, choice: FormatChoice, *, live: bool = False) -> str:
    contents = () if live else [("again.csv", FILE[0][1])]
    with (
        pytest.raises(HatcastError) as refused,
        open_device(settings, DeviceOptions(state, choice), live=live, contents=contents, partitions=1),
    ):
        raise AssertionError("it was opened")
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_live_source_and_another_recording_are_read_in_the_zone_and_unit_of_the_first(tmp_path: Path) -> None:
    state, settings = tmp_path / "state", settings_of("UTC")
    report(state, settings, csv())
    for live in (True, False):
        line = refusal(state, settings, csv("America/New_York"), live=live)
        assert line.startswith(f"{state}: times_in is America/New_York, and earlier runs had UTC")
        assert "could lose epsilon 105 a day once more" in line
    miles = FormatChoice("csv", Columns({"vehicle": "plate"}, "mph"))
    assert "unit is mph, and earlier runs had km/h" in refusal(state, settings, miles)


def test_the_same_content_is_read_in_one_format_and_by_the_same_columns(tmp_path: Path) -> None:
    state, settings = tmp_path / "state", settings_of("UTC")
    report(state, settings, csv())
    for other, words in ((csv(vehicle="trip"), "not as format csv, columns vehicle=trip"), (JSONL, "format jsonl")):
        line = refusal(state, settings, other)
        assert line.startswith("again.csv: an earlier run used readings of the same content as format csv, columns")
        assert words in line


def test_a_day_is_not_reported_by_the_clock_of_another_policy(tmp_path: Path) -> None:
    report(tmp_path / "state", settings_of("UTC"), JSONL)
    line = refusal(tmp_path / "state", settings_of("Asia/Tokyo"), JSONL)
    assert "policy.timezone is Asia/Tokyo, and earlier runs had UTC" in line


def test_a_hatcast_with_other_reading_rules_does_not_use_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(tmp_path / "state", settings_of("UTC"), JSONL)
    monkeypatch.setattr(pinned, "READING_RULES", READING_RULES + 1)
    assert f"was run under rules {READING_RULES}" in refusal(tmp_path / "state", settings_of("UTC"), JSONL)


def test_a_date_that_has_reports_has_the_same_time_zone_data_until_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, settings = tmp_path / "state", settings_of(ZONE)
    report(state, settings, JSONL)
    use_other_tables(monkeypatch)
    assert "2022-01-02 in Asia/Kolkata was opened as" in refusal(state, settings, JSONL)
    report(state, settings, JSONL, ["2022-01-06"])
    with open_store(state) as store:
        store.readings.check_dates(Rules(settings.policy, None).calendar)


def test_a_run_that_reports_nothing_fixes_nothing(tmp_path: Path) -> None:
    state, settings = tmp_path / "state", settings_of("UTC")
    report(state, settings, csv(), dates=())
    report(state, settings, csv("Asia/Tokyo", "trip"))
    assert "earlier runs had Asia/Tokyo" in refusal(state, settings, csv())
