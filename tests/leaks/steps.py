"""What happens to a system, step by step: readings come, slots close, people look at it, commands are run."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from aiomqtt import Client

from tests.exposed import figures
from tests.integration.harness import SECONDS, Pipeline, WorkerProcess
from tests.integration.health import is_ready, scraped
from tests.integration.readings import HOUR_MS, NOON_MS, ticks
from tests.leaks import outputs
from tests.leaks.faults import OVER_MS, damaged
from tests.leaks.marks import PLATE, Marked
from tests.leaks.system import Run
from tests.services import Record
from tests.services.mosquitto import Mosquitto

NEXT_DAY_MS: Final = NOON_MS + 13 * HOUR_MS


def send(run: Run) -> None:
    """The readings of vehicles that trust the operator, and damaged records between them."""
    own = {f"{PLATE}-{number:04}" for number in run.city.devices}
    trusted = [each for each in run.city.readings if each.vehicle not in own]
    run.pipeline.kafka.produce(
        run.pipeline.name, [*(each.record for each in trusted[:-20]), *damaged(run.city), *_records(trusted[-20:])]
    )


def _records(readings: list[Marked]) -> list[Record]:
    return [each.record for each in readings]


def replay(run: Run) -> None:
    """The same as a recording, by `hatcast feed replay`."""
    file = run.pipeline.folder / "recording.jsonl"
    lines = [each.line for each in run.city.readings]
    file.write_text("\n".join([*lines[:9], f'{{"vehicle": "{PLATE}-0001", "time": tomorrow}}', *lines[9:]]) + "\n")
    own = run.pipeline.folder / "own.txt"
    own.write_text("".join(f"{PLATE}-{number:04}\n" for number in (*run.city.devices, 9_999)))
    assert run.pipeline.replay(file, "jsonl", "--speedup", 0, "--except-vehicles", own)["finished"]
    if run.city.devices:
        state = run.pipeline.folder / "fleet.db"
        given = ("--vehicles-file", own, "--speedup", 0, "--state", state, "--format", "jsonl", "--json")
        run.pipeline.run("device", file, *given)
    bad = damaged(run.city)
    (run.pipeline.folder / "damaged.jsonl").write_bytes(b"\n".join(record.value for record in bad if record.value))
    run.pipeline.kafka.produce(run.pipeline.name, bad)


def close_slots(run: Run, at_ms: int = OVER_MS) -> None:
    """Heartbeat records after the end."""
    run.pipeline.kafka.produce(run.pipeline.name, ticks(at_ms))
    if run.city.devices:
        run.pipeline.kafka.produce(run.pipeline.settings.topics.reports, ticks(at_ms))


def wait_for_releases(run: Run, *workers: WorkerProcess) -> None:
    pipeline = run.pipeline
    pipeline.wait(lambda: bool(pipeline.published()) and pipeline.is_settled(), "releases of everything", *workers)
    for name in ("dead_letters", *run.city.fills):
        topic = getattr(pipeline.settings.topics, name)
        pipeline.wait(partial(_has_records, pipeline, topic), f"record of {name}", *workers)


def _has_records(pipeline: Pipeline, topic: str) -> bool:
    return bool(pipeline.kafka.read(topic))


def go_through(run: Run) -> None:
    """One worker from the first reading to the last release, with a map beside it and no faults."""
    worker = run.worker("worker")
    with shown(run):
        replay(run)
        close_slots(run)
        wait_for_releases(run, worker)
    run.look(worker)
    assert worker.terminate() == 0


def bridge(run: Run, mosquitto: Mosquitto) -> None:
    """`hatcast feed mqtt` with readings and garbage; their times are long ago."""
    topic = f"{run.pipeline.name}/{PLATE}"
    options = (
        "--host",
        "127.0.0.1",
        "--port",
        mosquitto.port,
        "--topic",
        f"{run.pipeline.name}/#",
        "--format",
        "jsonl",
    )
    process = run.start("feed", "mqtt", *options, "--metrics-listen", "127.0.0.1:0", name="bridge")
    run.pipeline.wait(lambda: "source reached" in process.logged(), "bridge", process)

    async def publish() -> None:
        async with Client("127.0.0.1", mosquitto.port) as client:
            for record in damaged(run.city):
                if record.value:
                    await client.publish(topic, record.value, 1)
            for each in run.city.readings[:5]:
                await client.publish(topic, each.line.encode(), 1)

    asyncio.run(publish())
    sent: Callable[[], bool] = lambda: figures(scraped(process), "hatcast_bridge_readings_total")[()] >= 5  # noqa: E731
    run.pipeline.wait(sent, "readings of the bridge", process)
    run.look(process)
    assert process.terminate() in (0, 130)


@contextmanager
def shown(run: Run) -> Iterator[None]:
    """The map while the block lasts, with a viewer of its event stream; at the end every view of it is kept."""
    display = run.start("display", "--port", 0, "--metrics-listen", "127.0.0.1:0", name="display")
    run.pipeline.wait(lambda: is_ready(display) and outputs.map_of(display) is not None, "map", display)
    viewer = outputs.Viewer(display)
    yield
    run.pipeline.wait(lambda: any(map(viewer.has, ("release", "continual"))), "event of a release", display)
    cells = sorted({each.cell for each in run.city.readings})
    run.seen += outputs.of_map(display, run.pipeline.settings.policy.name, cells)
    run.look(display)
    assert display.terminate() == 0
    run.seen.append(viewer.output())


def ask(run: Run, *more: Sequence[object]) -> None:
    """Commands; what they print is in the files. Those of the pipeline run at once, `more` one after the other."""
    pipeline = run.pipeline
    reading: list[Sequence[object]] = [
        ("tail", "--from-beginning", "--for", 1, "--json"),
        ("tail", "--releases", "--from-beginning", "--for", 1, "--json"),
        ("export", "--to", pipeline.folder / "exported"),
        ("budget", "show", "--json"),
        ("doctor",),
        ("status",),
        ("status", "--why", "next", "--json"),
    ]
    begun = [pipeline.begin(*arguments) for arguments in reading]
    for arguments in more:
        assert pipeline.hatcast(*arguments).code in (0, 1), arguments
    for arguments, finished in zip(reading, begun, strict=True):
        assert finished(SECONDS).code in (0, 1), arguments


def own_device(run: Run) -> list[Sequence[object]]:
    """A device of one vehicle over the recording, and over damaged records."""
    if not run.city.devices:
        return []
    own = ("--vehicle", f"{PLATE}-{run.city.devices[0]:04}", "--speedup", 0, "--state", run.pipeline.folder / "own.db")
    return [("device", run.pipeline.folder / name, *own) for name in ("recording.jsonl", "damaged.jsonl")]


def of_files(run: Run) -> list[Sequence[object]]:
    """Commands over a recording, and over damaged ones, most of which fail."""
    folder = run.pipeline.folder
    damaged_file = folder / "damaged.jsonl"
    return [
        ("batch", folder / "recording.jsonl", "--format", "jsonl", "--ledger", folder / "ledger", "--json"),
        ("batch", damaged_file, "--format", "jsonl"),
        ("batch", damaged_file, "--format", "itms"),
        ("feed", "replay", damaged_file, "--format", "hfp", "--speedup", 0),
        ("survey", damaged_file, "--format", "jsonl"),
    ]
