"""States of a demo, and the records that they show."""

import io
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from hatcast.agents.config.settings import parse_settings
from hatcast.agents.demo.defaults import demo_policy
from hatcast.agents.demo.messages import Began
from hatcast.agents.demo.page import page
from hatcast.agents.demo.state import Answered, Estimated, Noise, Origin, Published, Road, Running, State, Users
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.readings.formats import FormatChoice

PLAIN = {
    "privacy": {"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 105.0, "min_users": 10},
    "estimator": {"name": "array_averaging"},
}


def state(*files: str, **policy_tables: Any) -> State:
    """Of a policy with plain releases; with its name as tables, of the demo's own, a tracker."""
    table = demo_policy(None) | {"running": []} | (policy_tables or PLAIN)
    policy = parse_settings({"policy": table}, Path(), {}).policy
    began = Began(records=None, first_ms=1_700_000_000_000, last_ms=None, speedup=600.0)
    origin = Origin(tuple(map(Path, files)), FormatChoice("jsonl") if files else None)
    return State(policy, Calendar(policy), origin, "http://127.0.0.1:8080/", began, watermark_ms=began.first_ms)


def released(slot: str, cell: str = "8642d9d6fffffff", mean: float = 21.3, scale: float = 0.5) -> Published:
    name = f"demo/2026-10-22T{slot}/{cell}"
    return Published(
        release_id=name, status="released", cell=cell, date="2026-10-22", slot=slot, mean=mean, noise=Noise(scale)
    )


def tracked() -> State:
    return state(running=demo_policy(None)["running"])


def estimated(slot: str, cell: str = "8642d9d6fffffff", stage: Any = "live", half: float = 5.6) -> Estimated:
    road = Road(41.3, (41.3 - half, 41.3 + half))
    return Estimated(stage=stage, cell=cell, date="2026-10-22", slot=slot, road=road)


def running(slot: str, cell: str = "8642d9d6fffffff", name: str = "today", mean: float | None = 31.2) -> Running:
    """The running mean up to the end of a slot of an hour; None: no hour has a number."""
    made = None if mean is None else Road(mean, (mean - 2.4, mean + 2.4))
    end = f"2026-10-22T{int(slot[:2]) + 1:02}:00:00+05:30"
    return Running(name=name, window="today", cell=cell, date="2026-10-22", slot=slot, end=end, slots=9, mean=made)


def suppressed(slot: str, cell: str) -> Published:
    name = f"demo/2026-10-22T{slot}/{cell}"
    return Published(release_id=name, status="suppressed", cell=cell, date="2026-10-22", slot=slot)


def drawn(shown: State, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(page(shown, width, height))
    return capture.get().splitlines()


def answered(mean: float | None = 23.4, name: str = "fast") -> Answered:
    half = None if mean is None else (mean - 1.0, mean + 2.5)
    return Answered(
        release_id=f"demo/2026-10-23T09:00/8642d9d6fffffff/{name}",
        status="suppressed" if mean is None else "released",
        query=name,
        cell="8642d9d6fffffff",
        date="2026-10-23",
        slot="09:00",
        first_date="2026-10-22",
        last_date="2026-10-23",
        mean=mean,
        unit=None if mean is None else "vehicles/day",
        interval95=half,
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


def blended(slot: str = "09:00") -> Published:
    return msgspec.structs.replace(
        released(slot),
        noise=msgspec.json.decode(b'{"kind":"laplace_blend","central_scale":0.2,"local_scale":32.5}', type=Noise),
        interval95=(20.0, 23.9),
        weight=0.625,
        users=Users(20, 1_234),
    )
