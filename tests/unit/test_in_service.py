"""Vehicles out of service are left out by formats whose names say so, once speeds are derived."""

import json
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.recordings.files import open_recording
from hatcast.agents.sources.filter import Filter
from hatcast.stream.readings.formats import FORMATS, Format
from hatcast.stream.readings.positions import Derivation
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.vehicles import PARTITIONERS
from hatcast.stream.replay.heartbeats import Router
from tests.siri_deliveries import activity, delivery
from tests.unit.test_feed_gtfs_rt import MADE_S, entity, poll

TRIPS: tuple[dict[str, str], ...] = {"trip_id": "t1"}, {"route_id": "12"}, {}


def ridden(trip: dict[str, str], **changes: Any) -> Any:
    made = entity(**changes)
    for name, text in trip.items():
        setattr(made.vehicle.trip, name, text)
    return made


def read(paths: list[Path], feed: Format) -> list[Reading | None]:
    with open_recording(paths, feed) as recording:
        return [recorded.reading for _, recorded in recording]


def test_a_gtfs_rt_vehicle_without_a_trip_or_route_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "poll.pb"
    file.write_bytes(poll(*(ridden(trip, id=f"bus {at}") for at, trip in enumerate(TRIPS))))
    kept = [reading and reading.vehicle for reading in read([file], FORMATS["gtfs-rt-in-service"])]
    assert kept == ["bus 0", "bus 1", None]
    assert None not in read([file], FORMATS["gtfs-rt"])


@pytest.mark.parametrize("written", ["xml", "json"])
def test_a_siri_vehicle_without_a_journey_is_left_out(tmp_path: Path, written: str) -> None:
    framed = "<DataFrameRef>d</DataFrameRef><DatedVehicleJourneyRef>j</DatedVehicleJourneyRef>"
    text = delivery(
        activity(VehicleRef="1", FramedVehicleJourneyRef=framed),
        activity(VehicleRef="2", VehicleJourneyRef="j"),
        activity(VehicleRef="3"),
    )
    file = tmp_path / "siri.xml"
    file.write_text(text)
    if written == "json":
        activities = [json.loads(record) for record in FORMATS["siri"].split(text.encode())]
        file = tmp_path / "siri.json"
        file.write_text(json.dumps({"VehicleActivity": activities}))
    kept = [reading and reading.vehicle for reading in read([file], FORMATS["siri-in-service"])]
    assert kept == ["1", "2", None]


def test_a_speed_is_derived_from_a_position_out_of_service_which_is_then_left_out(tmp_path: Path) -> None:
    files = []
    for at, trip in enumerate(({}, {"trip_id": "t1"})):
        files.append(tmp_path / f"{at}.pb")
        moved = ridden(trip, speed=None, latitude=-33.75 + at / 1000, timestamp=MADE_S + 30 * at)
        files[-1].write_bytes(poll(moved, sent_s=MADE_S + 30 * at))
    derivation = Derivation("Australia/Sydney", 150.0, 60_000)
    found = read(files, FORMATS["gtfs-rt-in-service"].with_derived_speeds(derivation))
    assert found[0] is None
    assert found[1] is not None
    assert found[1].speed == pytest.approx(13.34, abs=0.1)  # 111 m in 30 s


def test_a_bridge_derives_from_a_position_out_of_service_and_does_not_send_it() -> None:
    derivation = Derivation("Australia/Sydney", 150.0, 60_000)
    feed = FORMATS["gtfs-rt-in-service"].with_derived_speeds(derivation)
    now = [MADE_S * 1000]
    bridge = Filter(feed, Router(8, PARTITIONERS["murmur2"]), 120_000, clock=lambda: now[0])
    sent = []
    for at, trip in enumerate(({}, {"trip_id": "t1"}, {})):
        now[0] = (MADE_S + 30 * at) * 1000
        moved = ridden(trip, speed=None, latitude=-33.75 + at / 1000, timestamp=MADE_S + 30 * at)
        sent += list(bridge.messages(poll(moved)))
    assert len(sent) == 1
    assert (bridge.readings, bridge.without_speed, bridge.undecodable) == (1, 1, 1)
