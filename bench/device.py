"""CPU of 10^4 devices in one process: readings, slots' ends, the share of a core at real pace, and signatures."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

import click
import h3.api.basic_int as h3

from bench.figures import Figure, middle, say, show
from bench.settings import PARTITIONS, write_settings
from bench.signed_reports import signed_costs
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.device.closing import RecordedRun
from hatcast.agents.device.fold import OwnHat, OwnMeans, Rules
from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.perturbation import Reporter
from hatcast.agents.device.sources import fleet_filter
from hatcast.agents.device.store import open_store
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.sources.pacing import Pace
from hatcast.agents.sources.synthetic import CityOptions, make_city
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.replay.heartbeats import RecordingPass
from tests.services import RedisServer, open_kafka

SLOT_END_S: Final = 60.0  # of CPU, for 10^4 devices
CORE_SHARE: Final = 0.25
CHECK_FIRST_US: Final = 300.0  # a signature and a certificate
CHECK_US: Final = 150.0
READINGS_AN_HOUR: Final = 360  # of a bus that sends one every 10 s
MORNING: Final = 1_641_096_000_000  # 2022-01-02 09:30 in Surat
FAR: Final = 1 << 60
_RING: Final = 5  # hexagons around one


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--devices", default=10_000, show_default=True, type=click.IntRange(10))
@click.option(
    "--hats", default=5, show_default=True, type=click.IntRange(1, 60), help="Hexagons of a device in a slot."
)
@click.option("--readings", default=200_000, show_default=True, type=click.IntRange(1_000))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
def command(as_json: bool, devices: int, hats: int, readings: int, rounds: int) -> int:  # noqa: FBT001 - click's way
    """Measure devices' CPU: per reading, and per slot end with draw, durable store and send."""
    with open_kafka() as kafka, tempfile.TemporaryDirectory(prefix="hatcast-bench-") as folder:
        say(f"Kafka: {kafka.source}")
        config = write_settings(
            Path(folder) / "hatcast.toml", kafka, RedisServer("redis://localhost", "none"), "devices", estimator="pwh"
        )
        settings = load_settings(config)
        found: list[Sequence[float]] = []
        for number in range(rounds):
            topic = kafka.create_topic(f"reports-{number}", PARTITIONS, None)
            bench = Round(settings, topic, Path(folder) / f"state-{number}")
            found.append((bench.fold_ns(devices, readings), *bench.slot_end_s(devices, hats)))
        signed = [signed_costs(settings.policy, devices, MORNING) for _ in range(rounds)]
    fold_ns, slot_end_s, wall_s, file_bytes = zip(*found, strict=True)
    to_scale = [seconds * 10_000 / devices for seconds in slot_end_s]
    share = [
        (10_000 * READINGS_AN_HOUR * reading / 1e9 + end) / 3_600
        for reading, end in zip(fold_ns, to_scale, strict=True)
    ]
    figures: list[Figure] = [
        middle("slot_end_cpu_s_of_10000", to_scale, "s of CPU", most=SLOT_END_S),
        middle("core_share_of_10000", share, "cores at real pace", most=CORE_SHARE),
        middle("fold_ns_per_reading", fold_ns, "ns of CPU"),
        middle("report_us", [seconds / devices / hats * 1e6 for seconds in slot_end_s], "us of CPU"),
        middle("slot_end_wall_s", wall_s, "s"),
        middle("state_bytes_per_report", [size / devices / hats for size in file_bytes], "bytes"),
        middle("sign_us", [each.sign for each in signed], "us of a device's CPU"),
        middle("worker_report_us", [each.fold for each in signed], "us of a worker's CPU"),
        middle("check_first_us", [each.first for each in signed], "us of a worker's CPU", most=CHECK_FIRST_US),
        middle("check_us", [each.further for each in signed], "us of a worker's CPU", most=CHECK_US),
    ]
    return show(f"device: {devices:,} devices, {hats} HATs each, {rounds} rounds", figures, as_json=as_json)


class Round:
    """One round, with its own topic and state file."""

    def __init__(self, settings: Settings, topic: str, state: Path) -> None:
        self._settings = settings
        self._rules = Rules(settings.policy, None)
        self._topic = topic
        self._state = state

    def fold_ns(self, devices: int, readings: int) -> float:
        """Return CPU nanoseconds per reading from the source on, with heartbeats and without draws."""
        city = make_city(CityOptions(vehicles=devices, seed=1), Calendar(self._settings.policy))
        records = [(at, Recorded(b"", each, at)) for at, each in islice(city.readings(MORNING), readings)]
        with self._open() as (outbox, reporter):
            run = RecordedRun(OwnMeans(self._rules), reporter, outbox, Pace(0.0, 0, threading.Event()))
            passage = RecordingPass(self._settings.policy, self._rules.calendar, FAR)
            return (
                1e9
                * _cpu(lambda: run.run(passage, records, fleet_filter(None), heartbeats=True, say=_silent))
                / readings
            )

    def slot_end_s(self, devices: int, hats: int) -> tuple[float, float, float]:
        """End the slot of all devices; return seconds of CPU, seconds of wall time, and bytes of the state file."""
        slot = self._rules.calendar.slot_at(MORNING)
        cells = sorted(h3.grid_disk(h3.latlng_to_cell(21.2, 72.8, 7), _RING))[:hats]
        own = [OwnHat(f"BUS-{n}", slot, cell, 1, 30_000 + n) for cell in cells for n in range(devices)]
        with self._open() as (outbox, reporter):

            def end() -> None:
                outbox.send(reporter.draw(own, slot.end_ms))
                if not outbox.finish(600.0):
                    raise RuntimeError("Kafka did not take the reports")

            begun = time.monotonic()
            cpu = _cpu(end)
            seconds = time.monotonic() - begun
        return cpu, seconds, self._state.stat().st_size

    @contextmanager
    def _open(self) -> Iterator[tuple[Outbox, Reporter]]:
        options = confluent_options(self._settings)
        with (
            open_store(self._state) as store,
            Outbox(options, self._topic, PARTITIONS, store, live=None) as outbox,
        ):
            yield outbox, Reporter(self._rules, store, SystemNoise())


def _cpu(work: Callable[[], object]) -> float:
    """Return CPU seconds of all threads, librdkafka's too."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _silent(_: int, __: int) -> None:
    """Ignore progress."""
