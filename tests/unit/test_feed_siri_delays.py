"""Delays of SIRI-VM deliveries, as values beside the speed or instead of it."""

import io

import pytest

from hatcast.stream.errors import SettingError
from hatcast.stream.readings.formats import format_with
from hatcast.stream.readings.reading import ValueReading, ValuesReading, ValueUnits
from tests.siri_deliveries import (
    TIME,
    activity,
    delivery,
    in_json,
)

DURATIONS = {
    "PT2M10S": 130.0,
    "-PT45S": -45.0,
    "PT0S": 0.0,
    "P0Y0M0DT0H2M10.500S": 130.5,
    "P1DT2S": 86_402.0,
    "PT61S": 61.0,
    "PT1H": 3_600.0,
}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_a_delay_is_a_duration_in_seconds(text: str, seconds: float) -> None:
    feed = format_with("siri", ValueUnits({"delay": "s"}))
    for record in (in_json(Delay=text), in_json(Delay={"value": text}), activity(Delay=text).encode()):
        found = feed.decode(record)
        assert isinstance(found, ValuesReading)
        assert found.others == {"delay": seconds}


def test_a_policy_of_delays_needs_no_speed() -> None:
    feed = format_with("siri", ValueUnits(single=("delay", "s")))
    expected = ValueReading("7", TIME, 59.9, 10.75, -45.0, "s")
    body = delivery(activity(Delay="-PT45S", Velocity=None)).encode()
    assert [each.reading for each in feed.records(io.BytesIO(body), "file")] == [expected]
    assert [feed.decode(record) for record in feed.split(body)] == [expected]
    assert feed.decode(in_json()) is None


@pytest.mark.parametrize("text", ["", "P", "PT", "P1M", "P1Y", "2M", "PT-2M", "PT2.5M", "PT١S", None, 61])
def test_a_record_whose_delay_is_not_a_number_of_seconds_is_undecodable(text: object) -> None:
    assert format_with("siri", ValueUnits({"delay": "s"})).decode(in_json(Delay=text)) is None


@pytest.mark.parametrize(("units", "says"), [({"load": "kg"}, "no 'load'"), ({"delay": "min"}, "not in min")])
def test_another_value_or_unit_is_refused(units: dict[str, str], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        format_with("siri", ValueUnits(units))
    with pytest.raises(SettingError, match=says):
        format_with("siri", ValueUnits(single=next(iter(units.items()))))
