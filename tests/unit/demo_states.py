"""States of a demo, and the records that they show."""

import io
import json
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from hatcast.agents.config.settings import parse_settings
from hatcast.agents.demo.defaults import demo_policy
from hatcast.agents.demo.rendering import page
from hatcast.agents.demo.state import Began, DemoOptions, DemoState
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.readings.formats import FormatChoice
from hatcast.stream.records import (
    BUDGET,
    ESTIMATE,
    QUERY,
    RELEASE,
    RUNNING,
    BudgetRecord,
    EstimateRecord,
    NoiseRecord,
    NormalRecord,
    QueryRecord,
    ReleaseRecord,
    RunningRecord,
    SpentRecord,
    UsersRecord,
)

GOLDENS = Path(__file__).parents[2] / "schemas" / "golden" / "0.1.0"
CELL = "8642d9d6fffffff"
PLAIN = {
    "privacy": {"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 105.0, "min_users": 10},
    "estimator": {"name": "array_averaging"},
}


def state(*files: str, **policy_tables: Any) -> DemoState:
    """Of a policy with plain releases; with its name as tables, of the demo's own, a tracker."""
    table = demo_policy(None) | {"running": []} | (policy_tables or PLAIN)
    policy = parse_settings({"policy": table}, Path(), {}).policy
    began = Began(records=None, first_ms=1_700_000_000_000, last_ms=None, speedup=600.0)
    options = DemoOptions(files=tuple(map(Path, files)), format=FormatChoice("jsonl") if files else None)
    return DemoState(policy, Calendar(policy), options, "http://127.0.0.1:8080/", began, watermark_ms=began.first_ms)


def golden(kind: str, name: str) -> bytes:
    """The record of a golden message."""
    return json.dumps(json.loads((GOLDENS / kind / f"{name}.json").read_text())["value"]).encode()


def released(slot: str, cell: str = CELL, mean: float = 21.3, scale: float = 0.5) -> ReleaseRecord:
    return msgspec.structs.replace(
        RELEASE.decode(golden("release", "replace_released")),
        release_id=f"demo/2026-10-22T{slot}/{cell}",
        cell=cell,
        date="2026-10-22",
        slot=slot,
        mean=mean,
        noise=NoiseRecord(kind="laplace", scale=scale),
        interval95=None,
    )


def tracked() -> DemoState:
    return state(running=demo_policy(None)["running"])


def budget(seq: int, spent: float, limit: float = 105.0, of_users: float | None = None) -> BudgetRecord:
    """A day's budget; of_users: what a tracker has charged one user at most."""
    return msgspec.structs.replace(
        BUDGET.decode(golden("budget", "replace")),
        date="2026-10-22",
        seq=seq,
        releases=seq,
        epsilon_user_day=spent,
        limit=limit,
        spent=None if of_users is None else SpentRecord(largest=of_users, mean=of_users / 2),
    )


def estimated(slot: str, cell: str = CELL, stage: Any = "live", half: float = 5.6) -> EstimateRecord:
    """An estimate whose numbers are its own: those of the golden one move with the tracker's variances."""
    return msgspec.structs.replace(
        ESTIMATE.decode(golden("estimate", "live")),
        stage=stage,
        cell=cell,
        date="2026-10-22",
        slot=slot,
        mean=normal(42.38, 7.0),
        road=normal(41.3, half),
    )


def normal(value: float, half: float) -> NormalRecord:
    return NormalRecord(value=value, sd=half / 1.96, interval95=(value - half, value + half))


def running(slot: str, cell: str = CELL, name: str = "today", mean: float | None = 31.2) -> RunningRecord:
    """The running mean up to the end of a slot of an hour; None: no hour has a number."""
    return msgspec.structs.replace(
        RUNNING.decode(golden("running", "today")),
        name=name,
        cell=cell,
        date="2026-10-22",
        slot=slot,
        end=f"2026-10-22T{int(slot[:2]) + 1:02}:00:00+05:30",
        slots=9,
        mean=None if mean is None else normal(mean, 2.4),
    )


def suppressed(slot: str, cell: str) -> ReleaseRecord:
    made = RELEASE.decode(golden("release", "replace_suppressed"))
    name = f"demo/2026-10-22T{slot}/{cell}"
    return msgspec.structs.replace(made, release_id=name, cell=cell, date="2026-10-22", slot=slot)


def drawn(shown: DemoState, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(page(shown, width, height))
    return capture.get().splitlines()


def answered(mean: float | None = 23.4, name: str = "fast") -> QueryRecord:
    return msgspec.structs.replace(
        QUERY.decode(golden("query", "replace_released")),
        release_id=f"demo/2026-10-23T09:00/{CELL}/{name}",
        status="suppressed" if mean is None else "released",
        query=name,
        cell=CELL,
        date="2026-10-23",
        slot="09:00",
        first_date="2026-10-22",
        last_date="2026-10-23",
        mean=mean,
        unit=None if mean is None else "vehicles/day",
        interval95=None if mean is None else (mean - 1.0, mean + 2.5),
        reason="missing_days" if mean is None else None,
    )


WITH_QUERIES = PLAIN | {
    "query": [
        {"name": "fast", "kind": "over_speed_limit", "speed_limit": 50, "days": 2, "from": "2026-10-22", "epsilon": 0.1}
    ]
}


HYBRID = {
    "privacy": {"epsilon": 1.0, "local_epsilon": 2.0, "max_hats_per_day": 40, "daily_limit": 80.0},
    "estimator": {"name": "pwh"},
}


def blended(slot: str = "09:00") -> ReleaseRecord:
    return msgspec.structs.replace(
        released(slot),
        noise=NoiseRecord(kind="laplace_blend", central_scale=0.2, local_scale=32.5),
        interval95=(20.0, 23.9),
        weight=0.625,
        users=UsersRecord(central=20, local=1_234),
    )
