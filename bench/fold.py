"""CPU time of each step per record, user or HAT. No services."""

import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import h3.api.basic_int as h3

from bench.city import workload
from bench.figures import Figure, middle, show
from bench.settings import PARTITIONS, write_settings
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.worker.folds import fold_maker
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.checkpoint import FoldChanges, restore, take_changes
from hatcast.stream.fold.packing import columns, unpack
from hatcast.stream.fold.reading_fold import Fold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.readings.formats import itms
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms, by_murmur2
from hatcast.stream.release.hats import HatChunks, release_of
from tests.folding import stored_of
from tests.services import KafkaServer, RedisServer

FOLD_OVER_DECODE: Final = 6.0
PACK_OVER_FOLD: Final = 2.0
LIVE_OVER_FOLD: Final = 0.5
LIVE_RECORDS: Final = 800  # of a checkpoint of all partitions: 3,000 vehicles with a reading every few seconds
BATCH: Final = 500
FAR: Final = 1 << 60  # later than any record

Batches = list[tuple[int, list[int], list[bytes]]]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--records", default=200_000, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def command(as_json: bool, records: int, rounds: int) -> int:  # noqa: FBT001 - click's way
    """Measure nanoseconds of decode, fold, packing and release."""
    with TemporaryDirectory(prefix="hatcast-bench-") as folder:
        services = KafkaServer("localhost:9092", "none"), RedisServer("redis://localhost", "none")
        settings = load_settings(write_settings(Path(folder) / "hatcast.toml", *services, "bench-fold"))
    batches = _batches(records)
    gc.collect()
    gc.freeze()  # as the worker does
    parts: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, nanoseconds in _round(settings, batches, records).items():
            parts.setdefault(name, []).append(nanoseconds)
    return show(f"fold: {records:,} records, {rounds} rounds", _figures(parts), as_json=as_json)


def _batches(records: int) -> Batches:
    """Return the workload in batches, as the transport delivers it."""
    waiting: list[tuple[list[int], list[bytes]]] = [([], []) for _ in range(PARTITIONS)]
    batches: Batches = []
    for record in workload(records):
        partition = by_murmur2(record.key, PARTITIONS)
        timestamps, values = waiting[partition]
        timestamps.append(record.arrival_ms)
        values.append(record.value)
        if len(values) == BATCH:
            batches.append((partition, timestamps, values))
            waiting[partition] = ([], [])
    return batches + [(partition, *rest) for partition, rest in enumerate(waiting)]


def _round(settings: Settings, batches: Batches, records: int) -> dict[str, float]:
    policy = settings.policy
    calendar = Calendar(policy)
    make = fold_maker(policy, calendar, FoldUsers(Pseudonyms(bytes(KEY_BYTES))), settings, PARTITIONS)
    folds: list[Fold] = [make(partition) for partition in range(PARTITIONS)]
    values = [value for _, _, some in batches for value in some]
    parts = {"decode_ns_per_record": _time(lambda: [itms.decode(value) for value in values], records)}
    places = [(reading.lat, reading.lon) for value in values if (reading := itms.decode(value)) is not None]
    cell = h3.latlng_to_cell
    parts["h3_ns_per_record"] = _time(
        lambda: [cell(lat, lon, policy.h3_resolution) for lat, lon in places], len(places)
    )

    def fold() -> None:
        for partition, timestamps, some in batches:
            folds[partition].apply(FAR, timestamps, some)

    parts["decode_and_fold_ns_per_record"] = _time(fold, records)
    parts |= _live(settings, batches)
    entries = sum(len(hat.users) for each in folds for slot in each.slots.values() for hat in slot.hats.values())
    chunks: list[bytes] = []
    hats: dict[tuple[str, str], list[bytes]] = {}

    taken: list[FoldChanges] = []
    parts["pack_ns_per_user"] = _time(lambda: taken.extend(map(take_changes, folds)), entries)
    for changes in taken:
        for (slot, name, _), chunk in changes.chunks.items():
            chunks.append(chunk)
            hats.setdefault((slot, name), []).append(chunk)
    parts["unpack_ns_per_user"] = _time(lambda: [list(unpack(chunk)) for chunk in chunks], entries)
    stored, loaded = list(map(stored_of, taken)), list(map(make, range(PARTITIONS)))
    parts["load_ns_per_user"] = _time(lambda: list(map(restore, loaded, stored)), entries)
    parts["columns_ns_per_user"] = _time(lambda: [columns(chunk) for chunk in chunks], entries)
    noise = SystemNoise()
    parts["release_ns_per_hat"] = _time(
        lambda: [
            release_of(policy, calendar, slot, name, HatChunks(some), noise) for (slot, name), some in hats.items()
        ],
        len(hats),
    )
    parts["bytes_per_user"] = sum(map(len, chunks)) / entries
    return parts


def _live(settings: Settings, batches: Batches) -> dict[str, float]:
    """Measure checkpoints of few readings each: the second half of the batches, with the state of the first half."""
    make = fold_maker(
        settings.policy, Calendar(settings.policy), FoldUsers(Pseudonyms(bytes(KEY_BYTES))), settings, PARTITIONS
    )
    folds: list[Fold] = [make(partition) for partition in range(PARTITIONS)]
    for partition, timestamps, values in batches[: len(batches) // 2]:
        folds[partition].apply(FAR, timestamps, values)
    for each in folds:
        take_changes(each)
    nanoseconds, size, records = 0, 0, 0
    share = LIVE_RECORDS // PARTITIONS
    for partition, timestamps, values in batches[len(batches) // 2 :]:
        fold = folds[partition]
        for at in range(0, len(values), share):
            fold.apply(FAR, timestamps[at : at + share], values[at : at + share])
            begun = time.process_time_ns()
            changes = take_changes(fold, journal=True)
            nanoseconds += time.process_time_ns() - begun
            packed = [*changes.chunks.values(), *changes.day_chunks.values()]
            size += sum(map(len, packed)) + (0 if changes.block is None else len(changes.block[1]))
            records += len(values[at : at + share])
    return {"live_checkpoint_ns_per_record": nanoseconds / records, "live_bytes_per_record": size / records}


def _time(work: Callable[[], object], number: int) -> float:
    """Return CPU nanoseconds per item: on a busy machine far steadier than wall time."""
    begun = time.process_time_ns()
    work()
    return (time.process_time_ns() - begun) / number


def _figures(parts: dict[str, list[float]]) -> list[Figure]:
    def ratio(name: str, above: Sequence[float], below: Sequence[float], most: float) -> Figure:
        return middle(name, [a / b for a, b in zip(above, below, strict=True)], "times", most=most)

    fold = parts["decode_and_fold_ns_per_record"]
    figures = [
        ratio("fold_over_decode", fold, parts["decode_ns_per_record"], FOLD_OVER_DECODE),
        ratio("pack_over_fold", parts["pack_ns_per_user"], fold, PACK_OVER_FOLD),
        ratio("live_checkpoint_over_fold", parts["live_checkpoint_ns_per_record"], fold, LIVE_OVER_FOLD),
    ]
    units = {"bytes_per_user": "bytes, packed", "live_bytes_per_record": "bytes to Redis"}
    return figures + [middle(name, values, units.get(name, "ns")) for name, values in parts.items()]
