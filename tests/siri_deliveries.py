"""SIRI-VM deliveries in XML and JSON, with made-up vehicles in the published structure, and how tests read them."""

import io
import json
from typing import Any

from hatcast.stream.readings.formats import Recorded, siri
from hatcast.stream.readings.reading import Reading
from tests.services.data import DATA

SAMPLES = DATA / "feeds"


TIME = "2026-03-12T09:30:47+01:00"


DELIVERED = "2026-03-12T09:31:00+01:00"


DELIVERED_MS = 1_773_304_260_000


def activity(prefix: str | None = "", **changes: str | None) -> str:
    """An activity in XML with everything; `changes` by element, None: absent."""
    fields = {"RecordedAtTime": TIME, "Longitude": "10.75", "Latitude": "59.9", "Velocity": "9", "VehicleRef": "7"}
    fields |= {name: text for name, text in changes.items() if text is not None}
    fields = {name: text for name, text in fields.items() if name not in changes or changes[name] is not None}
    written = {name: f"<{prefix}{name}>{text}</{prefix}{name}>" for name, text in fields.items()}
    time = written.pop("RecordedAtTime", "")
    place = "".join(written.pop(name, "") for name in ("Longitude", "Latitude"))
    journey = f"<{prefix}VehicleLocation>{place}</{prefix}VehicleLocation>" + "".join(written.values())
    return (
        f"<{prefix}VehicleActivity>{time}<{prefix}MonitoredVehicleJourney>{journey}</{prefix}MonitoredVehicleJourney>"
        f"</{prefix}VehicleActivity>"
    )


def delivery(*activities: str, attributes: str = "", stamp: str | None = DELIVERED) -> str:
    stamped = "" if stamp is None else f"<ResponseTimestamp>{stamp}</ResponseTimestamp>"
    inner = f"<VehicleMonitoringDelivery>{''.join(activities)}</VehicleMonitoringDelivery>"
    return f"<Siri{attributes}><ServiceDelivery>{stamped}{inner}</ServiceDelivery></Siri>"


def read(body: str | bytes) -> list[Recorded]:
    stream = io.BytesIO(body.encode() if isinstance(body, str) else body)
    return list(siri.records(stream, "file"))


def decoded(**changes: str | None) -> Reading | None:
    [recorded] = read(delivery(activity(**changes)))
    return recorded.reading


def in_json(**journey: Any) -> bytes:
    place = {"Longitude": 10.75, "Latitude": 59.9}
    fields = {"VehicleRef": "7", "VehicleLocation": place, "Velocity": 9} | journey
    time = fields.pop("RecordedAtTime", TIME)
    return json.dumps({"RecordedAtTime": time, "MonitoredVehicleJourney": fields}).encode()


SEVEN = Reading("7", TIME, 59.9, 10.75, 9.0, "m/s")
