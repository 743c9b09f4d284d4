"""Records that hatcast consumes: readings and devices' reports."""

from typing import Annotated, Literal

import msgspec

from hatcast.stream.records.fields import Cell, Date, DeviceId, PolicyId, Slot


class TelemetryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One reading on the telemetry topic. The key is the vehicle's id; an empty value is a heartbeat record.

    This is the canonical format, which hatcast's own sources send; docs/feeds.md lists the other formats. For a
    policy with several values each of them but the speed is a further field: a number, with the policy's name and unit.
    """

    vehicle: Annotated[str, msgspec.Meta(min_length=1, description="at most 128 bytes of UTF-8")]
    time: Annotated[str | int | float, msgspec.Meta(description="ISO 8601 with an offset, or epoch milliseconds")]
    lat: Annotated[float, msgspec.Meta(ge=-90, le=90, description="degrees north, WGS 84")]
    lon: Annotated[float, msgspec.Meta(ge=-180, le=180, description="degrees east, WGS 84")]
    speed: Annotated[float, msgspec.Meta(description="in `unit`")]
    unit: Annotated[Literal["km/h", "m/s", "mph", "kn"], msgspec.Meta(description="unit of `speed`")] = "km/h"


class ReportRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One report on the topic `reports`: a device's mean in one HAT, with noise that the device added."""

    id: DeviceId
    policy_id: PolicyId
    cell: Cell
    date: Date
    slot: Slot
    value: Annotated[float, msgspec.Meta(description="km/h, a multiple of the policy's grid; may be below 0")]
    epsilon: Annotated[float, msgspec.Meta(gt=0, description="of the noise in `value`: the policy's local_epsilon")]
