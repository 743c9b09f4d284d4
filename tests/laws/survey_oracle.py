"""What a survey and a selection come to, in plain dictionaries, by the fold's oracle."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hatcast.lab.survey.rows import minutes_of
from tests.laws import fold_oracle
from tests.laws.fold_logs import Case, Log

Entered = dict[tuple[str, str, int, str], int]
"""(date, slot, cell, user) -> first arrival"""


def written(path: Path, log: Log) -> Path:
    """The log as a recording: its records with their arrivals."""
    lines = []
    for arrival, value in log:
        record = _record(value)
        if record is not None:
            lines.append(json.dumps(record | {"arrival": arrival}))
    path.write_text("\n".join(lines))
    return path


def as_recorded(log: Log) -> Log:
    """The part of a log that such a recording holds, in the order in which it arrived."""
    return sorted(((arrival, value) for arrival, value in log if _record(value) is not None), key=lambda each: each[0])


def _record(value: bytes | None) -> dict[str, Any] | None:
    try:
        record = json.loads(value or b"")
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def rules_of(case: Case, resolution: int) -> fold_oracle.Rules:
    """The case's rules without what a survey leaves out: cells, first date, cap and partitions."""
    rules = replace(case.rules(), resolution=resolution, cells=None, first_date=None, cap=10**9)
    return replace(rules, partition=0, partitions=1)


def entered(rules: fold_oracle.Rules, now: int, log: Log) -> Entered:
    """Who entered which HAT, and when first. Each record is asked by itself."""
    found: Entered = {}
    for arrival, value in log:
        alone = fold_oracle.State()
        if fold_oracle.outcome(rules, alone, now, arrival, value) == "accepted":
            (key,) = alone.contributions
            found[key] = min(arrival, found.get(key, arrival))
    return found


def capped_sums(pairs: Entered, candidates: Sequence[int], cap: int) -> Counter[tuple[int, int]]:
    """(candidate, minutes of the slot) -> user-days, of each user-day's first `cap` pairs."""
    days = defaultdict(list)
    for (date, slot, cell, user), arrival in pairs.items():
        if cell in candidates:
            days[date, user].append((arrival, minutes_of(slot), cell))
    return Counter((cell, slot) for pairs_of_day in days.values() for _, slot, cell in sorted(pairs_of_day)[:cap])


def without_user_day(rules: fold_oracle.Rules, log: Log, user: str, date: str) -> Log:
    """The log without any record of a user that was made on a local date."""

    def is_theirs(value: bytes | None) -> bool:
        record = fold_oracle.decoded(value or b"")
        time = None if record is None else fold_oracle.time_of(record["time"])
        if record is None or time is None or record["vehicle"] != user:
            return False
        first, last = fold_oracle.LOCAL_DATES
        return first <= time < last and fold_oracle.slot_of(rules.timezone, rules.slot_length, time)[0] == date

    return [(arrival, value) for arrival, value in log if not is_theirs(value)]
