"""Records that hatcast consumes: readings and devices' reports."""

from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from hatcast.stream.records.fields import Cell, Date, DeviceId, PolicyId, Slot, When, about, text


class TelemetryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One reading on the telemetry topic. The key is the vehicle's id; an empty value is a heartbeat record.

    This is the canonical format, which hatcast's own sources send; docs/feeds.md lists the other formats. For a
    policy with several values each of them but the speed is a further field: a number, with the policy's name and unit.
    For a policy with `[policy.value]`, `value` is that value.
    """

    ONE_OR_MORE_OF: ClassVar = ("speed", "value")

    vehicle: Annotated[str, about("at most 128 bytes of UTF-8", min_length=1)]
    time: Annotated[str | int | float, about("ISO 8601 with an offset, or epoch milliseconds")]
    lat: Annotated[float, about("degrees north, WGS 84", ge=-90, le=90)]
    lon: Annotated[float, about("degrees east, WGS 84", ge=-180, le=180)]
    speed: Annotated[float, about("in `unit`; not with `[policy.value]`")] | UnsetType = UNSET
    value: Annotated[float, about("in `unit`: the speed under another name, or the policy's value")] | UnsetType = UNSET
    unit: Annotated[
        str,
        about(
            "of `speed` or `value`: `km/h`, `m/s`, `mph` or `kn`; with `[policy.value]` its unit, which is"
            " then the default",
            min_length=1,
            max_length=16,
        ),
    ] = "km/h"


class ReportRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One report on the topic `reports`: a device's mean in one HAT, with noise that the device added.

    A signed report has three more fields at its end, which workers check if `worker.report_keys_file` is set.
    """

    RULES: ClassVar = (When("signature", has=("key", "certificate")),)

    id: DeviceId
    policy_id: PolicyId
    cell: Cell
    date: Date
    slot: Slot
    value: Annotated[float, about("in the policy's unit, a multiple of its grid; may be outside of its range")]
    epsilon: Annotated[float, about("of the noise in `value`: the policy's local_epsilon", gt=0)]
    key: Annotated[str, text("^[0-9a-f]{64}$", "the device's public Ed25519 key of that date")] | UnsetType = UNSET
    certificate: (
        Annotated[str, text("^[0-9a-f]{128}$", "signature of an authority under the date and `key`")] | UnsetType
    ) = UNSET
    signature: (
        Annotated[str, text("^ed25519:[0-9a-f]{128}$", "by `key`, of all bytes before this field; the last field")]
        | UnsetType
    ) = UNSET
