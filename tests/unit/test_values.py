"""Several values of a reading, from the record on the topic to the published release."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.agents.recordings.files import open_recording
from hatcast.agents.sources.filter import Filter
from hatcast.agents.tables.terminal import read_shown, record_line, releases_table
from hatcast.stream.fold.packing import Row, columns, pack, strip, stripped_columns, unpack, values_columns
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.mechanisms.grid import MAX_FINENESS
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Format, Recorded, format_with, jsonl
from hatcast.stream.readings.formats.jsonl import canonical_value
from hatcast.stream.readings.reading import Outcome, Reading, ValuesReading, ValueUnits
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.records import RELEASE
from hatcast.stream.records.shown import SHOWN
from hatcast.stream.release.hats import Release
from hatcast.stream.release.published import published_of
from hatcast.stream.release.spending import fineness_of
from hatcast.stream.replay.heartbeats import Router
from hatcast.stream.tracker.smoother import estimates_of
from tests.contracts.goldens import CROWD, NOW_MS, VALUES, policy, released
from tests.folding import NOON, apply, fold_of, occurring, other_totals, record
from tests.laws.fold_logs import VALUES as THREE
from tests.replayed import policy_of

DELAYED = format_with("jsonl", ValueUnits({"delay": "s"}))
HFP = format_with("hfp", ValueUnits({"delay": "s"}))
BUSES = [(60, total, 50_000_000) for _, total in CROWD]
FIELDS = '"tst": "2025-03-12T11:24:51Z", "spd": 5.5, "lat": 60.2, "long": 24.9'


def hfp(dl: str) -> bytes:
    return f'/hfp/v2/journey/ongoing/vp/tram/0040/00401/1003 {{"VP": {{{FIELDS}{dl}}}}}'.encode()


def others(reading: Reading | None) -> dict[str, float | str] | None:
    return reading.others if isinstance(reading, ValuesReading) else None


# Formats


@pytest.mark.parametrize(
    ("sent", "delay"),
    [(12, 12.0), (-7.25, -7.25), ("nan", "nan"), ("-inf", "-inf"), (10**400, 1.7976931348623157e308)],
)
def test_a_value_is_a_field_of_a_canonical_record_and_survives_a_replay(sent: object, delay: float | str) -> None:
    raw = record(delay=sent)
    reading = DELAYED.decode(raw)
    assert others(reading) == {"delay": delay}
    again = DELAYED.decode(canonical_value(Recorded(raw, reading, None)))
    assert again == reading
    assert others(jsonl.decode(raw)) is None, "a policy without values does not read it"


@pytest.mark.parametrize("sent", [{}, {"delay": None}, {"delay": "12"}, {"delay": True}, {"delay": [1]}])
def test_a_record_without_a_value_of_the_right_type_is_undecodable(sent: dict[str, object]) -> None:
    assert jsonl.decode(record(**sent)) is not None
    assert DELAYED.decode(record(**sent)) is None


@pytest.mark.parametrize("text", [b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"'])
def test_a_text_of_invalid_bytes_is_no_value(text: bytes) -> None:
    assert DELAYED.decode(record(delay="SPOT").replace(b'"SPOT"', text)) is None
    assert HFP.decode(hfp(', "dl": "SPOT"').replace(b'"SPOT"', text)) is None


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'{"delay": 1}'])
def test_what_is_no_record_is_undecodable(raw: bytes) -> None:
    assert DELAYED.decode(raw) is None
    assert HFP.decode(raw) is None


@pytest.mark.parametrize(
    ("dl", "delay"),
    [(', "dl": 262', -262.0), (', "dl": -30', 30.0), (', "dl": 0', 0.0), (', "dl": "nan"', "nan")],
)
def test_a_delay_of_hfp_is_positive_behind_the_timetable(dl: str, delay: float | str) -> None:
    assert others(HFP.decode(hfp(dl))) == {"delay": delay}


@pytest.mark.parametrize("dl", ["", ', "dl": null', ', "dl": "7"'])
def test_a_record_of_hfp_without_a_delay_is_undecodable(dl: str) -> None:
    assert HFP.decode(hfp(dl)) is None


@pytest.mark.parametrize(("feed", "raw"), [(DELAYED, record(delay=3)), (HFP, hfp(', "dl": -3'))])
def test_recordings_have_the_values_too(feed: Format, raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    path.write_bytes(raw + b"\n" + raw.replace(b"delay", b"dela").replace(b"dl", b"d"))
    with open_recording([path], feed) as recording:
        found = [recorded.reading for _, recorded in recording]
    assert [others(reading) for reading in found] == [{"delay": 3.0}, None]


def test_a_column_of_parquet_is_a_value(tmp_path: Path) -> None:
    rows = [json.loads(record(delay=delay)) for delay in (1.5, None, -2.0)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "some.parquet")
    with open_recording([tmp_path / "some.parquet"], DELAYED) as recording:
        assert [others(recorded.reading) for _, recorded in recording] == [{"delay": 1.5}, None, {"delay": -2.0}]


def test_a_bridge_sends_the_values_and_drops_what_lacks_one() -> None:
    bridge = Filter(HFP, Router(1, by_murmur2), 60_000)
    body = b"\n".join([hfp(', "dl": 262'), hfp("")])
    (message,) = bridge.messages(body)
    assert others(DELAYED.decode(message.value)) == {"delay": -262.0}
    assert (bridge.readings, bridge.undecodable) == (1, 1)


# The fold


@pytest.mark.parametrize(
    ("changes", "reject_above", "outcome"),
    [
        ({}, 150.0, Outcome.ACCEPTED),
        ({"delay": "nan"}, 150.0, Outcome.BAD_VALUE),
        ({"delay": "nan"}, "none", Outcome.ACCEPTED),
        ({"delay": 1e300, "speed": 1.0}, 150.0, Outcome.ACCEPTED),
        ({"delay": "nan", "lat": 91.0}, 150.0, Outcome.BAD_PLACE),
        ({"delay": "nan", "time": "soon"}, 150.0, Outcome.BAD_VALUE),
        ({"delay": "nan", "speed": 0}, 150.0, Outcome.BAD_VALUE),
        ({"delay": 0, "speed": 0}, 150.0, Outcome.ZERO),
        ({"load": None}, 150.0, Outcome.UNDECODABLE),
    ],
)
def test_rule_5_reads_all_values_and_rule_7_the_speed_alone(
    changes: dict[str, Any], reject_above: float | str, outcome: Outcome
) -> None:
    fold = fold_of(policy_of(**THREE, reject_above=reject_above))
    apply(fold, [(NOON, record(**{"delay": 5.0, "load": 0.5} | changes))])
    assert occurring(fold) == {outcome: 1}


def test_totals_are_of_distances_from_the_lower_end_and_a_record_that_does_not_count_adds_nothing() -> None:
    fold = fold_of(policy_of(**THREE))
    sent = [(0, -600.0, 0.25), (1, 3600.5, 2.0), (1, 77.0, 0.3), (2, 0.0005, 0.5)]  # the third is a duplicate
    apply(fold, [(NOON + 60_000, record(time=NOON + 1000 * s, delay=d, load=load)) for s, d, load in sent])
    assert [*other_totals(fold).values()] == [(0 + 4_200_000 + 600_001, 0 + 750 + 250)]


# Packing

rows = st.lists(
    st.tuples(st.binary(min_size=8, max_size=8), st.integers(1, 2**31), st.integers(0, 2**40), st.integers(0, 2**62)),
    min_size=1,
    max_size=20,
)


@given(rows, st.integers(1, 7))
def test_users_with_several_values_are_unpacked_as_they_were_packed(
    users: list[tuple[bytes, int, int, int]], number: int
) -> None:
    packed = [Row(name, count, total, 7, 5, (other,) * number) for name, count, total, other in users]
    chunk = pack(packed)
    assert list(unpack(chunk)) == packed
    pseudonyms, counts, sums = values_columns(chunk)
    assert pseudonyms.tolist() == [int.from_bytes(row.pseudonym, "big") for row in packed]
    assert counts.tolist() == [row.count for row in packed]
    assert sums.tolist() == [[row.total, *row.others] for row in packed]
    speeds = pack([Row(row.pseudonym, row.count, row.total, row.maximum, row.seen) for row in packed])
    assert [each.tolist() for each in columns(chunk)] == [each.tolist() for each in columns(speeds)]
    assert strip(chunk)[1:] == strip(speeds)[1:]
    assert len(list(stripped_columns(strip(chunk)))) == 1


def test_chunks_of_speeds_alone_have_no_other_columns() -> None:
    with pytest.raises(ValueError, match="have no values but the speed"):
        values_columns(pack([Row(bytes(8), 1, 2, 2, 1)]))


# The release


def published(release: Release) -> bytes:
    return numbered(release.record(NOW_MS), 7)


def test_a_release_has_each_value_with_its_own_noise_and_the_speed_as_its_own() -> None:
    """24 buses in arrays of one user each: the sensitivity is the width / 24, the noise that of epsilon 1/2."""
    value = published(released(VALUES, BUSES, -441, 37))
    read = RELEASE.decode(value)
    assert read.values is not None
    speed, delay = read.values
    assert (read.mean, read.raw, read.unit, read.noise, read.interval95) == (
        speed.mean,
        speed.raw,
        speed.unit,
        speed.noise,
        speed.interval95,
    )
    assert speed.noise.scale == 2 * (65_000 // 24 + 1) / 1000
    assert delay.noise.scale == 2 * (4200 * 2 // 24 + 1) / 2
    assert delay.raw == round(Fraction(50_000_000, 30_000)) / 2 - 600 + 37 / 2
    assert (delay.name, delay.unit) == ("delay", "s")
    assert read.counts is not None
    assert read.counts.users == 24
    assert read.epsilon == 1.0


def test_too_few_users_suppress_all_values_and_draw_no_noise() -> None:
    release = released(VALUES, BUSES[:9])
    assert b'"values"' not in published(release)
    assert (release.status, release.charge) == ("suppressed", 0)


def read_back(release: Release, of: Policy) -> int:
    return published_of(published(release), of.policy_id, fineness_of(of)).fineness


def test_a_recovered_record_has_the_fineness_of_its_coarsest_noise() -> None:
    """The speed's noise is over 5,000 steps, the delay's 702: 2^9."""
    release = released(VALUES, BUSES, 0, 0)
    assert release.fineness == read_back(release, VALUES) == 9
    fine = policy("fine", values=["speed", "delay"], value=[{**VALUE, "grid": 0.001}])
    assert released(fine, BUSES, 0, 0).fineness == MAX_FINENESS
    few = released(VALUES, BUSES[:9])
    assert few.fineness == read_back(few, VALUES) == 0


VALUE = {"name": "delay", "unit": "s", "lower": -600.0, "upper": 3600.0}


def test_estimates_are_of_the_speed_with_the_noise_that_it_has() -> None:
    read = RELEASE.decode(published(released(VALUES, BUSES, -441, 37)))
    alone = msgspec.structs.replace(read, values=None)
    found = list(estimates_of(VALUES, [read]))
    assert found == list(estimates_of(VALUES, [alone]))
    assert {each.unit for each in found} == {"km/h"}


def test_tail_and_batch_show_each_value() -> None:
    value = published(released(VALUES, BUSES, -441, 37))
    line = " ".join(record_line(read_shown(value)).plain.split())
    assert line == (
        "surat-speed-and-delay 2022-01-02 09:00-10:00 87608b0d2ffffff 43.168 km/h 26.937 to 59.399"
        " delay 252.0 s -600.0 to 1303.5 released"
    )
    table = releases_table([SHOWN.decode(value)])
    assert [list(column.cells) for column in table.columns[4:]] == [
        ["speed 43.2 km/h\ndelay 252 s"],
        ["26.9 to 59.4\n-600 to 1304"],
    ]
