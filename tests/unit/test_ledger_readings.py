"""How a ledger's readings were read is fixed: the same file read in another way is refused, and other files are not."""

import gzip
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import hatcast
from hatcast.agents.cluster.live.charge import RecordedUsers, charge_in_file
from hatcast.agents.cluster.live.state import Chosen, ClusteringPlan
from hatcast.agents.config.settings import load_settings
from hatcast.agents.recordings import pinned
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.readings.formats import Columns, FormatChoice
from hatcast.stream.readings.reading import READING_RULES
from tests.api_data import FRAMES, readings, written
from tests.batching import CONFIG, USERS, batch, dump_of, refusal, releases, telemetry
from tests.folding import HOUR, MINUTE, NOON
from tests.other_tzdata import ZONE, use_other_tables_of_times
from tests.unit.test_api_policy import policy

CSV = ("--format", "csv", "--columns", "vehicle=plate,time=at,lat=lat,lon=lon,value=kmh", "--unit", "km/h")
TRIPS = ("--format", "csv", "--columns", "vehicle=trip,time=at,lat=lat,lon=lon,value=kmh", "--unit", "km/h")
PAID = "could lose epsilon 105 a day once more"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "hatcast.toml"
    path.write_text(CONFIG)
    return path


def rides(path: Path, at: int = NOON + MINUTE) -> Path:
    """A table of every user once, whose times have no offset; each bus also has a number of its trip."""
    time = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    rows = [f"{user},trip-{user},{time},21.19,72.81,30" for user in USERS]
    path.write_text("\n".join(["plate,trip,at,lat,lon,kmh", *rows]) + "\n")
    return path


def dates(*arguments: object) -> list[str]:
    return [each["date"] for each in releases(batch(*arguments, "--json"))]


def test_a_file_whose_times_are_taken_for_another_zones_is_not_released_on_a_second_date(
    tmp_path: Path, config: Path
) -> None:
    ledger, file = tmp_path / "ledger", rides(tmp_path / "rides.csv", NOON + 11 * HOUR)
    shared = ("--config", config, "--ledger", ledger)
    assert dates(file, *CSV, *shared) == ["2022-01-02"]
    line = refusal(file, *CSV, "--times-in", "America/New_York", *shared)
    assert f"{ledger}: times_in is America/New_York, and earlier runs had UTC" in line
    assert PAID in line
    other = rides(tmp_path / "other.csv")
    assert "times_in is" in refusal(other, *CSV, "--times-in", "Asia/Kolkata", *shared), "also of another file"
    assert dates(other, *CSV, "--times-in", "UTC", *shared) == ["2022-01-02"], "the policy's zone was meant before"


@pytest.mark.parametrize(
    ("header", "given", "part"),
    [
        ("plate,timestamp_utc,lat,lon,speed_kmh", ("--times-in", "Asia/Kolkata"), "times_in Asia/Kolkata"),
        ("plate,timestamp_utc,lat,lon,speed_mps", ("--unit", "km/h"), "unit km/h"),
    ],
)
def test_a_zone_or_unit_that_the_header_names_is_not_replaced_by_an_option_later_nor_before(
    tmp_path: Path, config: Path, header: str, given: tuple[str, ...], part: str
) -> None:
    """A named zone that is the policy's own is another one than the header's."""
    config.write_text(CONFIG.replace('"UTC"', '"Asia/Kolkata"'))
    file = tmp_path / "rides.csv"
    file.write_text("\n".join([header, *(f"{user},2022-01-02 20:30:00,21.19,72.81,10" for user in USERS)]) + "\n")
    for first, second in (((), given), (given, ())):
        shared = ("--format", "csv", "--config", config, "--ledger", tmp_path / f"ledger{len(first)}")
        assert dates(file, *first, *shared)
        line = refusal(file, *second, *shared)
        assert "an earlier run used readings of the same content as format csv" in line
        assert part in line
        assert dates(file, *first, *shared), "as before it goes on"


def test_times_of_another_zone_are_those_of_its_data_when_their_date_was_released(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = rides(tmp_path / "rides.csv", NOON + 17 * HOUR + 40 * MINUTE)  # 05:40 in Kolkata: 00:10, or 23:40 before
    kolkata = (*CSV, "--times-in", ZONE, "--config", config, "--ledger", tmp_path / "ledger")
    assert dates(file, *kolkata) == ["2022-01-03"]
    use_other_tables_of_times(monkeypatch)
    line = refusal(file, *kolkata)
    assert "2022-01-01 in Asia/Kolkata was opened as 2022-01-01T00:00:00+05:30" in line
    assert "here it is 2022-01-01T00:00:00+06:00" in line
    assert dates(file, *kolkata[:-1], tmp_path / "new") == ["2022-01-02"], (
        "the readings that would have been paid for again"
    )
    other = (*CSV, "--times-in", "UTC", "--config", config, "--ledger", tmp_path / "other")
    assert dates(file, *other) == dates(file, *other), "the rules of no other zone matter"


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((), ("--unit", "m/s"), "unit is m/s, and earlier runs had km/h"),
        ((), ("--derive-speed",), "derive_speed is missing, and earlier runs had none"),
        (("--derive-speed-always",), ("--derive-speed",), "derive_speed is missing, and earlier runs had always"),
    ],
)
def test_the_meaning_of_values_is_that_of_the_first_run(
    tmp_path: Path, config: Path, first: tuple[str, ...], second: tuple[str, ...], words: str
) -> None:
    shared = ("--config", config, "--ledger", tmp_path / "ledger")
    moving = rides(tmp_path / "rides.csv").read_text() + "".join(
        f"{user},trip,2022-01-02T12:02:00,21.192,72.81,30\n" for user in USERS
    )
    file = tmp_path / "moving.csv"
    file.write_text(moving)
    batch(file, *CSV, *first, *shared, "--json")
    assert words in refusal(rides(tmp_path / "other.csv", NOON + HOUR), *CSV, *second, *shared)


def test_the_same_content_is_not_read_by_other_columns_whatever_the_file_is_called_or_how_it_is_packed(
    tmp_path: Path, config: Path
) -> None:
    shared = ("--config", config, "--ledger", tmp_path / "ledger")
    file, packed = rides(tmp_path / "rides.csv"), tmp_path / "again.csv.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    saved = tmp_path / "saved by a spreadsheet.csv"
    saved.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    first = batch(file, *CSV, *shared, "--json").stdout
    for each in (file, packed, saved):
        line = refusal(each, *TRIPS, *shared)
        assert line.startswith(f"{each}: an earlier run used readings of the same content as format csv, columns")
        assert "vehicle=plate" in line
        assert "vehicle=trip" in line
        assert PAID in line
    assert batch(packed, *CSV, *shared, "--json").stdout == first


def test_a_file_that_has_grown_is_not_read_by_other_columns_but_another_one_with_its_header_is(
    tmp_path: Path, config: Path
) -> None:
    shared = ("--config", config, "--ledger", tmp_path / "ledger")
    file, more = rides(tmp_path / "today.csv"), rides(tmp_path / "more.csv", NOON + HOUR)
    header, *rows = file.read_text().splitlines(keepends=True)
    _, *grown = more.read_text().splitlines(keepends=True)
    file.write_text("".join([header, *rows * 10]))
    assert dates(file, *CSV, *shared) == ["2022-01-02"]
    file.write_text("".join([header, *rows * 10, *grown]))
    assert f"{file}: an earlier run used readings of the same content" in refusal(file, *TRIPS, *shared)
    assert len(dates(file, *CSV, *shared)) == 2, "as before it goes on"
    assert dates(rides(tmp_path / "other.csv", NOON + 2 * HOUR), *TRIPS, *shared) == ["2022-01-02"]


def test_files_of_several_agencies_share_a_ledger_each_with_its_columns_and_formats(
    tmp_path: Path, config: Path
) -> None:
    shared = ("--config", config, "--ledger", tmp_path / "ledger")
    assert dates(rides(tmp_path / "a.csv"), *CSV, *shared) == ["2022-01-02"]
    assert dates(rides(tmp_path / "b.csv", NOON + HOUR), *TRIPS, *shared) == ["2022-01-02"]
    lines = written(tmp_path / "c.jsonl", [{**row, "time": row["time"] + 3 * HOUR} for row in readings()])
    assert dates(lines, "--format", "jsonl", *shared)
    dump = dump_of(tmp_path / "d", telemetry(2, NOON + 5 * HOUR, NOON + 7 * HOUR))
    assert dates(dump, "--format", "kafka", *shared)


def test_options_by_which_nothing_could_be_read_are_corrected_in_the_next_run(tmp_path: Path, config: Path) -> None:
    shared = ("--config", config, "--ledger", tmp_path / "ledger")
    file = rides(tmp_path / "rides.csv")
    swapped = ("--format", "csv", "--columns", "vehicle=plate,time=at,lat=lon,lon=kmh,value=lat", "--unit", "km/h")
    far = tmp_path / "far.csv"
    far.write_text(file.read_text().replace(",21.19,72.81,", ",21.19,172.81,"))
    assert releases(batch(far, *swapped, *shared, "--json")) == [], "172.81 degrees are no latitude"
    assert dates(far, *CSV, *shared) == ["2022-01-02"]


@pytest.mark.parametrize(
    ("key", "before", "now"), [("telemetry_partitioner", "murmur2", "crc32"), ("telemetry_format", "jsonl", "itms")]
)
def test_all_dumps_of_a_ledger_are_folded_as_the_first_since_a_later_one_has_the_same_records(
    tmp_path: Path, config: Path, key: str, before: str, now: str
) -> None:
    ledger, logs = tmp_path / "ledger", telemetry(2, NOON, NOON + 2 * HOUR)
    shared = ("--format", "kafka", "--config", config, "--ledger", ledger)
    batch(dump_of(tmp_path / "dump", logs), *shared, "--json")
    later = dump_of(tmp_path / "later", [[*log, (NOON + 5 * HOUR, None)] for log in logs])
    config.write_text(f'[topics]\n{key} = "{now}"\n{CONFIG}')
    assert f"{ledger}: {key} is {now}, and earlier runs had {before}" in refusal(later, *shared)
    config.write_text(CONFIG)
    assert dates(later, *shared)


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_is_not_read_by_other_columns_in_whatever_order_and_library_it_comes_again(
    tmp_path: Path, kind: str
) -> None:
    rows = [{**row, "trip": f"trip-{row['vehicle']}"} for row in readings()]
    columns = {"vehicle": "vehicle", "time": "time", "lat": "lat", "lon": "lon", "value": "speed"}
    shared: dict[str, Any] = {"unit": "km/h", "ledger": tmp_path / "ledger"}
    first = hatcast.batch(pl.DataFrame(rows), policy(), columns=columns, **shared)
    assert len(first)
    backwards = [dict(reversed(row.items())) for row in reversed(rows)]
    with pytest.raises(HatcastError, match="data: an earlier run used readings of the same content as format parq"):
        hatcast.batch(FRAMES[kind](backwards), policy(), columns=columns | {"vehicle": "trip"}, **shared)
    again = hatcast.batch(FRAMES[kind](backwards), policy(), columns=columns, **shared)
    assert sorted(again.values) == sorted(first.values)
    for compression in ("zstd", "snappy"):  # the same table, whatever its bytes
        file = tmp_path / f"{compression}.parquet"
        pl.DataFrame(backwards).write_parquet(file, compression=compression)
        with pytest.raises(
            HatcastError, match="parquet: an earlier run used readings of the same content as format parq"
        ):
            hatcast.batch(file, policy(), columns=columns | {"vehicle": "trip"}, **shared)


def _sorted_by_pandas(frame: pl.DataFrame, folder: Path) -> object:
    frame.to_pandas().sort_values("speed").to_parquet(folder / "sorted.parquet", index=True)
    return folder / "sorted.parquet"


def _of_pandas(frame: pl.DataFrame, _: Path) -> object:
    return frame.to_pandas()  # its numbers with a gap are floats


def _of_nanoseconds(frame: pl.DataFrame, _: Path) -> object:
    return frame.with_columns(pl.col("time").cast(pl.Datetime("ns")))


@pytest.mark.parametrize("convert", [_sorted_by_pandas, _of_pandas, _of_nanoseconds])
def test_a_frame_is_the_same_content_in_whatever_types_a_library_has_its_times_and_numbers(
    tmp_path: Path, convert: Callable[[pl.DataFrame, Path], Any]
) -> None:
    rows = [{**row, "trip": f"trip-{row['vehicle']}", "delay": number or None} for number, row in enumerate(readings())]
    frame = pl.DataFrame(rows).with_columns(pl.col("time").cast(pl.Datetime("ms")).cast(pl.Datetime("us")))
    columns = {"vehicle": "vehicle", "time": "time", "lat": "lat", "lon": "lon", "value": "speed"}
    shared: dict[str, Any] = {"unit": "km/h", "ledger": tmp_path / "ledger"}
    assert len(hatcast.batch(frame, policy(), columns=columns, **shared))
    with pytest.raises(HatcastError, match="an earlier run used readings of the same content as format parq"):
        hatcast.batch(convert(frame, tmp_path), policy(), columns=columns | {"vehicle": "trip"}, **shared)


def test_a_hatcast_with_other_reading_rules_needs_a_policy_that_replaces_the_first(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = ("--config", config, "--ledger", tmp_path / "ledger")
    dates(rides(tmp_path / "rides.csv"), *CSV, *shared)
    monkeypatch.setattr(pinned, "READING_RULES", READING_RULES + 1)
    next_day = rides(tmp_path / "next.csv", NOON + 24 * HOUR)
    assert f"was run under rules {READING_RULES}, and one bus could count as two" in refusal(next_day, *CSV, *shared)
    config.write_text(CONFIG.replace('name = "test"', 'name = "new"\nreplaces = "test"\nfrom = "2022-01-03"'))
    assert dates(next_day, *CSV, *shared) == ["2022-01-03"]


def test_a_clustering_does_not_charge_a_file_that_was_read_in_another_way(tmp_path: Path, config: Path) -> None:
    ledger, file = tmp_path / "ledger", rides(tmp_path / "rides.csv")
    settings = load_settings(config)
    plan = ClusteringPlan(
        clustering="0" * 32,
        chosen=Chosen(
            policy_id=settings.policy.policy_id,
            date="2022-01-02",
            slots=("12:00",),
            clusters=2,
            iterations=2,
            epsilon=1.0,
            seed=1,
            blend="pwh",
        ),
        answers_from=(),
    )

    def charge(vehicle: str) -> None:
        columns = Columns.parse(f"vehicle={vehicle},time=at,lat=lat,lon=lon,value=kmh")
        choice = FormatChoice("csv", Columns(columns.names, "km/h"))
        feed = policy_format(choice, settings.policy)
        charge_in_file(RecordedUsers([file], feed, choice, ledger), settings, plan)

    charge("plate")
    charge("plate")
    with pytest.raises(HatcastError, match=r"of the same content as format csv, .*vehicle=plate"):
        charge("trip")
    assert "of the same content" in refusal(file, *TRIPS, "--config", config, "--ledger", ledger)
    file = tmp_path
    with pytest.raises(HatcastError, match="is no file, and a clustering that goes on reads it again"):
        charge("plate")


def test_a_ledger_whose_readings_could_be_stored_twice_is_damaged(tmp_path: Path, config: Path) -> None:
    ledger, file = tmp_path / "ledger", rides(tmp_path / "rides.csv")
    batch(file, *CSV, "--config", config, "--ledger", ledger, "--json")
    with closing(sqlite3.connect(ledger)) as database:
        database.executescript("DROP TABLE read_as; CREATE TABLE read_as (name TEXT, value TEXT)")
    assert "is a damaged ledger" in refusal(file, *CSV, "--config", config, "--ledger", ledger)
