"""A ledger with releases, running means and answers to a query, for its map."""

from pathlib import Path
from typing import Final

from hatcast.agents.config.settings import Settings, load_settings
from tests.batching import CONFIG, USERS, batch
from tests.folding import DAY, HOUR, NOON, record

QUERY: Final = """
[[policy.query]]
name = "two-days"
kind = "mean_speed"
days = 2
from = "2022-01-02"
epsilon = 1.0
min_n = 2
[[policy.running]]
name = "today"
window = "today"
[[policy.running]]
name = "midday"
window = "period"
hours = [12, 14]
"""
WEST, EAST = 72.8, 72.85


def ledger_in(
    folder: Path, users: list[str] = USERS, speed: float = 30.0, last: tuple[float, ...] = (WEST, EAST)
) -> tuple[Path, Settings]:
    """The ledger of two days with two hours in two hexagons, and the settings with which it was made.

    last   longitudes of the readings of each day's last hour
    """
    (folder / "hatcast.toml").write_text(CONFIG + QUERY + '[display]\ntitle = "Buses & trams"\n')
    (folder / "rides.jsonl").write_bytes(
        b"\n".join(
            record(vehicle=user, time=NOON + day * DAY + hour * HOUR, lon=lon, speed=speed)
            for day in range(3)
            for hour in range(2)
            for lon in (last if hour else (WEST, EAST))
            for user in users
        )
    )
    path = folder / "day.ledger"
    done = batch(folder / "rides.jsonl", "--config", folder / "hatcast.toml", "--ledger", path)
    assert done.exit_code == 0, done.output
    return path, load_settings(folder / "hatcast.toml")
