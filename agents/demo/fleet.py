"""Vehicles that do not trust the operator, each with a device: the code of `hatcast device`, beside the telemetry.

    all records -> Fleet.pass_on -> all records; the readings of vehicles with devices are then left out of telemetry
                     '-> own mean of each HAT + own noise -> topic `reports`

Devices and telemetry share one pass and one pace, so the watermarks of both topics move together.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hatcast.agents.config.settings import Settings
from hatcast.agents.demo.embedded import PARTITIONS
from hatcast.agents.device.recorded import RecordedRun
from hatcast.agents.device.run import Device, DeviceOptions, open_device
from hatcast.agents.device.sources import FleetFilter
from hatcast.agents.sources.pacing import Pace
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import Recorded

_FINISH_S: Final = 10.0  # for the reports in flight at the end


def vehicles_with_devices(vehicles: Iterable[str], share: float) -> frozenset[str]:
    """Return the vehicles that do not trust the operator, chosen at random: all but `share` of them."""
    ordered = sorted(vehicles)
    devices = len(ordered) - round(share * len(ordered))
    return frozenset(secrets.SystemRandom().sample(ordered, devices))


class Fleet:
    """Devices of some vehicles of a recording or a synthetic city."""

    def __init__(self, device: Device, vehicles: frozenset[str], pace: Pace) -> None:
        self._device = device
        self._accepts = FleetFilter(vehicles)
        self._run = RecordedRun(device.means, device.reporter, device.outbox, pace)

    def pass_on(self, passed: Iterable[tuple[int, Recorded | None]]) -> Iterator[tuple[int, Recorded | None]]:
        """Yield the records and heartbeats of a pass, each after the devices have taken it; end early if stopped."""
        for timestamp, recorded in passed:
            if not self._run.take(timestamp, recorded, self._accepts, heartbeats=True):
                return
            if recorded is None:
                self._device.outbox.poll()
            yield timestamp, recorded

    def end(self, heartbeat_ms: int | None, note: Callable[[str], object]) -> bool:
        """Report the last slot; return False if stopped before. See RecordedRun.end. Raises HatcastError."""
        if not self._run.end(heartbeat_ms, note):
            return False
        if not self._device.outbox.finish(_FINISH_S):
            raise HatcastError("the embedded Kafka does not take the devices' reports: start again")
        return True


@contextmanager
def open_fleet(settings: Settings, vehicles: frozenset[str], pace: Pace, folder: Path) -> Iterator[Fleet]:
    """Open the devices of these vehicles, with their state file in a folder. Raises HatcastError."""
    options = DeviceOptions(state=folder / "fleet.db")
    with open_device(settings, options, live=False, partitions=PARTITIONS) as device:
        yield Fleet(device, vehicles, pace)
