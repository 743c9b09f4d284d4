"""Readings for tests of the Python API, as files and as frames of each library."""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa

from tests.batching import USERS

NOON = datetime(2022, 1, 2, 12, tzinfo=UTC)


EXACT = {"epsilon": 10.0, "max_hats_per_day": 40, "daily_limit": 1000.0, "min_users": 3}


Rows = list[dict[str, Any]]


def readings(shuffled: int | None = None) -> Rows:
    """Two hours of all users, one of them in another hexagon, and a row without a speed."""
    rows: Rows = [
        {
            "vehicle": user,
            "time": int(NOON.timestamp() * 1000) + (7 * minute) * 60_000 + 1_000 * number,
            "lat": 21.19,
            "lon": 72.81 if number < 8 else 72.9,
            "speed": 20.0 + number,
            "unit": "km/h",
        }
        for minute in range(15)
        for number, user in enumerate(USERS)
    ]
    rows.append({**rows[-1], "speed": None})
    if shuffled is not None:
        random.Random(shuffled).shuffle(rows)
    return rows


def written(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


FRAMES: dict[str, Callable[[Rows], Any]] = {
    "polars": pl.DataFrame,
    "pandas": pd.DataFrame,
    "table": pa.Table.from_pylist,
    "stream": lambda rows: pa.RecordBatchReader.from_batches(
        (table := pa.Table.from_pylist(rows)).schema, table.to_batches()
    ),
    "times": lambda rows: pl.DataFrame(rows).with_columns(pl.col("time").cast(pl.Datetime("ms", "UTC"))),
    "categories": lambda rows: pl.DataFrame(rows).with_columns(pl.col("vehicle").cast(pl.Categorical)),
}
