"""Cells of several sizes, end to end: telemetry, devices' reports and queries over days, live and by batch.

The epsilons are so large that no noise is left on the grid.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import h3.api.basic_str as h3
import pytest

from tests.integration.harness import Pipeline, open_pipeline
from tests.services import KafkaServer, RedisServer

NOON: Final = 1_641_124_800_000  # 2022-01-02T12:00Z
COARSE: Final = h3.latlng_to_cell(21.20, 72.80, 7)
FINE: Final = sorted(h3.cell_to_children(COARSE))[:2]
UNLISTED: Final = sorted(h3.cell_to_children(COARSE))[2]
AWAY: Final = h3.latlng_to_cell(21.40, 72.80, 7)
PLACES: Final = [h3.cell_to_latlng(cell) for cell in (*FINE, UNLISTED, AWAY)]
CELLS: Final = [*FINE, COARSE, AWAY]
"""of the readings at each place"""
CENTRAL, LOCAL = 12, 5
PRIVACY: Final = {
    "epsilon": 1e7,
    "acknowledge_weak_privacy": True,
    "max_hats_per_day": 3,
    "daily_limit": 1e9,
    "min_users": 1,
}
QUERY: Final = {"name": "speed", "kind": "mean_speed", "days": 1, "epsilon": 1e3, "min_n": 1}


def speed_of(bus: int, place: int) -> float:
    return 20.0 + bus + 10 * place / 4


def hour() -> Iterator[dict[str, Any]]:
    """Each bus at each place, in the order of places: the last is above K."""
    for place, (lat, lon) in enumerate(PLACES):
        for bus in range(CENTRAL + LOCAL):
            at = NOON + place * 600_000 + bus * 1000
            yield {"vehicle": f"BUS-{bus:02}", "time": at, "lat": lat, "lon": lon, "speed": speed_of(bus, place)}


def opened(kafka: KafkaServer, redis_server: RedisServer, folder: Path, title: str, policy: dict[str, Any]) -> Any:
    (folder / "fine.txt").write_text('source = "survey"\n' + "\n".join(FINE) + "\n")
    sizes = {"resolutions": [7, 8], "fine_cells": "fine.txt", "privacy": PRIVACY}
    return open_pipeline(kafka, redis_server, folder, title, {"policy": sizes | policy})


def recorded(pipeline: Pipeline) -> Path:
    return written(pipeline, "hour", hour())


def written(pipeline: Pipeline, name: str, readings: Iterable[dict[str, Any]]) -> Path:
    path = pipeline.folder / f"{name}.jsonl"
    path.write_text("".join(f"{json.dumps(reading)}\n" for reading in readings))
    return path


def released(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """Cell -> its release; each has one value."""
    values = pipeline.published()
    assert all(len(set(of)) == 1 for of in values.values())
    return {(record := json.loads(of[0]))["cell"]: record for of in values.values()}


def estimated(pipeline: Pipeline) -> set[str]:
    """Cells with estimates, which are published beside the releases."""
    return {json.loads(each.value or b"")["cell"] for each in pipeline.kafka.read(pipeline.settings.topics.estimates)}


def batch(pipeline: Pipeline, *topics: str) -> list[dict[str, Any]]:
    """The records of `hatcast batch` over dumps of the topics."""
    dumps = {topic: pipeline.folder / f"{topic}.jsonl" for topic in topics}
    for topic, dump in dumps.items():
        assert pipeline.hatcast("dump", topic, "--output", dump).code == 0
    reports = ("--reports", dumps["reports"]) if "reports" in dumps else ()
    ledger = pipeline.folder / "ledger"
    done = pipeline.run("batch", dumps["telemetry"], "--format", "kafka", *reports, "--ledger", ledger, "--json")
    return [json.loads(line) for line in done.out.splitlines()]


def without(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ("released_at", "seq")}


def test_central_buses_and_devices_count_in_the_same_cells_live_and_by_batch(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    policy = {"estimator": {"name": "pwh"}}
    with opened(kafka, redis_server, tmp_path, "sizes-devices", policy) as pipeline:
        recording, local = recorded(pipeline), tmp_path / "local.txt"
        local.write_text("".join(f"BUS-{bus:02}\n" for bus in range(CENTRAL, CENTRAL + LOCAL)))
        worker = pipeline.worker()
        pipeline.replay(recording, "jsonl", "--speedup", 0, "--except-vehicles", local)
        pipeline.run(
            "device", recording, "--vehicles-file", local, "--speedup", 0,
            "--state", tmp_path / "fleet.db", "--format", "jsonl", "--json",
        )  # fmt: skip
        pipeline.wait(pipeline.is_settled, "end of releases", worker)
        live = released(pipeline)
        assert [*live] and live.keys() == set(CELLS[:3])
        for place, cell in enumerate(CELLS[:3]):
            assert live[cell]["users"] == {"central": CENTRAL, "local": LOCAL}
            assert live[cell].get("remainder") == (True if cell == COARSE else None)
            means = [speed_of(bus, place) for bus in range(CENTRAL + LOCAL)]
            assert min(means) < live[cell]["raw"] < max(means)
        (budget,) = pipeline.budget_records().values()
        assert budget["epsilon_user_day"] == 3e7 == PRIVACY["max_hats_per_day"] * PRIVACY["epsilon"]
        assert [without(each) for each in batch(pipeline, "telemetry", "reports")] == [
            without(live[cell]) for cell in sorted(live)
        ]


def test_releases_queries_estimates_and_contributions_have_the_same_cells_live_and_by_batch(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with opened(kafka, redis_server, tmp_path, "sizes", {"query": [QUERY]}) as pipeline:
        first = pipeline.worker()
        *most, end = hour()
        pipeline.replay(written(pipeline, "most", most), "jsonl", "--speedup", 0, "--no-end")  # nothing is final yet
        pipeline.wait(lambda: pipeline.folded() == len(most), "fold of telemetry", first)
        contributions, oracle = pipeline.contributions(), pipeline.oracle()
        assert contributions == oracle
        first.kill()
        pipeline.bury()
        last = pipeline.worker()
        pipeline.replay(written(pipeline, "end", [end]), "jsonl")
        pipeline.wait(pipeline.is_settled, "end of releases", last)
        live = released(pipeline)
        assert live.keys() == set(CELLS[:3])
        assert pipeline.outcomes() == {"accepted": 3 * (CENTRAL + LOCAL), "over_cap": CENTRAL + LOCAL}
        for place, cell in enumerate(CELLS[:3]):
            assert live[cell]["raw"] == pytest.approx(speed_of(0, place) + (CENTRAL + LOCAL - 1) / 2, abs=0.002)
        answers = {(record := json.loads(values[0]))["cell"]: record for values in pipeline.answers().values()}
        assert answers.keys() == live.keys()
        assert {cell for cell, each in answers.items() if each.get("remainder")} == {COARSE}
        pipeline.wait(lambda: estimated(pipeline) == live.keys(), "estimates of the same cells", last)
        made = [without(each) for each in batch(pipeline, "telemetry")]
        assert [each for each in made if "query" not in each] == [without(live[cell]) for cell in sorted(live)]
        assert {each["cell"] for each in made if "query" in each} == answers.keys()
        assert last.terminate() == 0
