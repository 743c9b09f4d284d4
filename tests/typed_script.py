"""A script of a user, which is only read: the strict type check of the repository passes it, and sees the mistakes.

Each mistake has an ignored error, and an ignored error that is none fails the type check.
"""

from datetime import date
from pathlib import Path

import pandas as pd
import polars as pl

import hatcast

policy = hatcast.Policy(
    name="speeds",
    upper_bound=65.0,
    timezone="UTC",
    privacy={"epsilon": 1.0, "max_hats_per_day": 5, "daily_limit": 5.0},
    estimator="array_averaging",
)
polars, pandas = pl.DataFrame({"vehicle": ["a"]}), pd.DataFrame({"vehicle": ["a"]})
columns = hatcast.Columns({"vehicle": "v"}, time_format="s")
released = hatcast.batch(polars, policy, ledger=Path("l"), columns={"vehicle": "v"}, unit="m/s")
also = hatcast.batch(pandas, "hatcast.toml", days=(date(2022, 1, 1), "2022-01-02"), columns=columns)
means: list[float | None] = [release.mean for release in released]
frame: pl.DataFrame = released.to_polars()
other: pd.DataFrame = also.answers.to_pandas()
read: hatcast.Releases = hatcast.read("releases.jsonl")
stages: list[str] = [estimate.stage for estimate in hatcast.estimates(read, policy)]
slots: list[int] = [running.slots for running in hatcast.running_means(read, policy)]
days: hatcast.BudgetDays = hatcast.read(hatcast.load_settings(Path("hatcast.toml")), "budget")
tracked = hatcast.Policy.from_file("hatcast.toml").epsilon + hatcast.plan("r.jsonl", policy, format="jsonl")[0].share
pl.DataFrame(released)

hatcast.Policy(name="a", upper_bound="65", timezone="UTC", privacy={"daily_limit": 5.0}, estimator="baseline")  # type: ignore[arg-type]
hatcast.Policy(name="a", timezone="UTC", privacy={"daily_limit": 5.0, "epsilom": 1.0}, estimator="baseline")  # type: ignore[typeddict-unknown-key]
hatcast.read("releases.jsonl", "release")  # type: ignore[call-overload]
hatcast.batch("a")  # type: ignore[call-arg]
