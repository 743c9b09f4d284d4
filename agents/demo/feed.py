"""`python -m hatcast.agents.demo.feed`: the demo's feed, in its own process, so that it does not slow the worker down.

It reads its Job as one line from standard input, writes FeedMessages to standard output, and ends when standard input
closes.
"""

import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from redis.exceptions import RedisError

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.demo.defaults import (
    HYBRID_SPEEDUP,
    HYBRID_VEHICLES,
    SPEEDUP,
    VEHICLES,
    WHOLE_RECORDING_S,
    city_start_ms,
    demo_settings,
)
from hatcast.agents.demo.embedded import PARTITIONS
from hatcast.agents.demo.state import Began, Ended, Failed, FeedJob, FeedMessage, Note
from hatcast.agents.device.closing import RecordedRun
from hatcast.agents.device.run import FAR_MS, Device, DeviceOptions, as_records, open_device
from hatcast.agents.device.sources import fleet_filter, vehicles_in
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.redis.clients import SyncRedis
from hatcast.agents.redis.connection import connect_redis
from hatcast.agents.sources.pacing import Pace
from hatcast.agents.sources.replay import (
    FlowControl,
    ProgressListener,
    RecordedProducer,
    replay_pace,
    send_recording,
    stored_offsets,
)
from hatcast.agents.sources.synthetic import CityOptions, check_speeds_only, city_messages, make_city
from hatcast.stream.errors import HatcastError, RecordingError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.readings.formats import FormatChoice, Recorded
from hatcast.stream.readings.vehicles import PARTITIONERS
from hatcast.stream.replay.heartbeats import Replay, Router, WholeDays

# Vehicles that do not trust the operator, each with a device: the code of `hatcast device`, beside the telemetry.
#
#     all records -> Fleet.pass_on -> all records; the readings of vehicles with devices are then left out of telemetry
#                      '-> own mean of each HAT + own noise -> topic `reports`
#
# Devices and telemetry share one pass and one pace, so the watermarks of both topics move together.

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
        self._accepts = fleet_filter(vehicles)
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


_SHUTDOWN_S: Final = 2.0  # for a clean shutdown, before the process exits in any case


def main() -> None:
    """Run the job that standard input describes."""
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=FeedJob)
    stop = threading.Event()
    threading.Thread(target=_exit_with_input, args=(stop,), daemon=True).start()
    try:
        config = None if job.config is None else Path(job.config)
        settings = demo_settings(job.addresses, config, job.format, hybrid=job.hybrid)
        with closing(connect_redis(settings)) as redis:
            if job.files:
                _send_files(settings, job, redis, stop)
            else:
                _send_city(settings, job, redis, stop)
    except RedisError:
        if not stop.is_set():
            send(Failed(text="the embedded Redis does not answer: start again"))
    except HatcastError as error:
        send(Failed(text=str(error)))


def _exit_with_input(stop: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 1):  # not the buffered file: its lock would break the interpreter's shutdown
        pass
    stop.set()
    threading.Event().wait(_SHUTDOWN_S)
    os._exit(0)


def send(message: FeedMessage) -> None:
    """Write one message as a line and flush it."""
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


def _send_city(settings: Settings, job: FeedJob, redis: SyncRedis, stop: threading.Event) -> None:
    check_speeds_only(settings.policy)
    vehicles, default = (HYBRID_VEHICLES, HYBRID_SPEEDUP) if settings.policy.takes_reports else (VEHICLES, SPEEDUP)
    speedup = default if job.speedup is None else job.speedup
    start = city_start_ms(now_ms(), settings.policy)
    calendar, router = Calendar(settings.policy), _router(settings)
    city = make_city(CityOptions(vehicles=vehicles, speedup=speedup, seed=job.seed), calendar)
    groups = _groups(settings, job, lambda: city.vehicles)
    send(Began(records=None, first_ms=start, last_ms=None, speedup=speedup, **groups.counts))
    pace = Pace(speedup, 0, stop)
    with _producer(settings, redis, stop) as producer:
        if not groups.takes_reports:
            producer.send_all(city_messages(city.readings(start), router, start), pace)
            return
        plan = Replay(settings.policy, calendar, router, FAR_MS, groups.devices)
        with open_fleet(settings, groups.devices, pace, _folder()) as fleet:
            passed = plan.with_heartbeats(as_records(city.readings(start)))
            producer.send_all(plan.messages_of(fleet.pass_on(passed)), pace)


def _send_files(settings: Settings, job: FeedJob, redis: SyncRedis, stop: threading.Event) -> None:
    policy = settings.policy
    names, choice = ", ".join(job.files), job.format or FormatChoice("")
    feed = policy_format(choice, policy)
    with open_recording(job.files, feed) as recording, _producer(settings, redis, stop) as producer:
        if recording.first_ms is None or recording.last_ms is None:
            raise RecordingError(names, f"holds no {choice.name} record", "check the file and --format")
        first = recording.first_ms
        last = min(recording.last_ms, now_ms() + policy.max_ahead_ms)  # later records are not sent
        default = max(SPEEDUP, (last - first) / 1000 / WHOLE_RECORDING_S)
        speedup = default if job.speedup is None else job.speedup
        groups = _groups(settings, job, lambda: vehicles_in(recording))
        send(Began(records=len(recording), first_ms=first, last_ms=last, speedup=speedup, **groups.counts))
        # A tracker settles a date that is closed, and a query is answered after its last.
        passage = WholeDays if policy.method.settles_days or policy.queries else Replay
        plan = passage(policy, Calendar(policy), _router(settings), now_ms(), groups.devices)
        pace = replay_pace(policy, speedup, stop)
        if not groups.takes_reports:
            listener = ProgressListener(lambda _records, _at: None, _note)
            finished = send_recording(recording, plan, producer, pace, with_end=True, listener=listener)
        else:
            with open_fleet(settings, groups.devices, pace, _folder()) as fleet:
                passed = fleet.pass_on(plan.with_heartbeats(recording))
                finished = producer.send_all(plan.messages_of(passed), pace)
                finished = finished and fleet.end(plan.end_ms(), _note) and producer.send_all(plan.end(), pace)
                producer.finish()
        if not finished:
            return
    if producer.records and plan.undecodable == producer.records and not groups.devices:
        raise RecordingError(names, f"holds no {job.format} record that can be decoded", "check the file and --format")
    send(
        Ended(
            sent=producer.records,
            undecodable=plan.undecodable + plan.without_arrival,
            arrived_in_future=plan.arrived_in_future,
            arrived_before_1970=plan.arrived_before_1970,
        )
    )


@dataclass(frozen=True, slots=True)
class _Groups:
    """Vehicles by group."""

    takes_reports: bool  # whether the policy uses reports of devices
    devices: frozenset[str] = frozenset()  # vehicles with devices; their readings are not sent
    vehicles: int = 0  # number of all vehicles; 0 if the policy takes no reports

    @property
    def counts(self) -> dict[str, int]:
        """Fields of `Began`."""
        if not self.takes_reports:
            return {}
        return {"trusting": self.vehicles - len(self.devices), "devices": len(self.devices)}


def _groups(settings: Settings, job: FeedJob, vehicles: Callable[[], Collection[str]]) -> _Groups:
    """Choose who trusts the operator. `vehicles`: called only if the policy takes reports."""
    if not settings.policy.takes_reports:
        return _Groups(takes_reports=False)
    found = vehicles()
    return _Groups(takes_reports=True, devices=vehicles_with_devices(found, job.share), vehicles=len(found))


def _note(sentence: str) -> None:
    """Send a sentence to the user, without the option in parentheses, which is that of another command."""
    send(Note(text=sentence.partition(" (")[0]))


def _folder() -> Path:
    """Return the demo's own folder, which is deleted at its end."""
    return Path(tempfile.gettempdir())


def _producer(settings: Settings, redis: SyncRedis, stop: threading.Event) -> RecordedProducer:
    """Return a producer with flow control: the mock cluster drops old records, read or not."""
    flow_control = FlowControl(stored_offsets(redis, settings.policy.name, PARTITIONS), [0] * PARTITIONS)
    return RecordedProducer(confluent_options(settings), settings.topics.telemetry, stop, flow_control)


def _router(settings: Settings) -> Router:
    return Router(PARTITIONS, PARTITIONERS[settings.topics.telemetry_partitioner])


if __name__ == "__main__":
    main()
