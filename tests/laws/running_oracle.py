"""Running means of releases by their definition, one cell and slot at a time, in plain Python."""

import math
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

from hatcast.stream.policy.running_keys import Running, Window
from hatcast.stream.records import ReleaseRecord


def is_in(record: ReleaseRecord, running: Running, last: ReleaseRecord) -> bool:
    """Whether a release is in the window that ends with the slot of `last`. Both have the same cell, or not."""
    end, at = datetime.fromisoformat(record.end), datetime.fromisoformat(last.end)
    if end > at:
        return False
    if running.window is Window.TODAY:
        return record.date == last.date
    if running.window in (Window.DAY, Window.WEEK):
        return at - end < timedelta(days=1 if running.window is Window.DAY else 7)
    then, now = date.fromisoformat(record.date), date.fromisoformat(last.date)
    same = (then.weekday() in (5, 6)) == (now.weekday() in (5, 6))
    is_named = has_hour(record, running) if running.window is Window.PERIOD else record.slot == last.slot
    return is_named and same and now - then < timedelta(days=running.days)


def has_hour(record: ReleaseRecord, running: Running) -> bool:
    """Whether a release is of an hour of a period."""
    first, end = running.hours
    return first * 60 <= int(record.slot[:2]) * 60 + int(record.slot[3:]) < end * 60


def means(records: Sequence[ReleaseRecord], running: Sequence[Running]) -> Iterator[tuple[str, float, float, int]]:
    """Yield (running_id without the policy, mean, standard deviation, slots) of every mean, by slot."""
    slots = {record.start: record for record in records}
    for start in sorted(slots, key=datetime.fromisoformat):
        last = slots[start]
        for each in running:
            if each.window is Window.PERIOD and not has_hour(last, each):
                continue
            for cell in sorted({record.cell for record in records}):
                window = [
                    record
                    for record in records
                    if record.cell == cell and record.status == "released" and is_in(record, each, last)
                ]
                if window:
                    yield f"{each.name}/{last.date}T{last.slot}/{cell}", *mean_of(window), len(window)


def mean_of(window: Sequence[ReleaseRecord]) -> tuple[float, float]:
    """Weighted mean of releases with Laplace noise, and its standard deviation."""
    weights, values, scales = [], [], []
    for record in window:
        assert record.raw is not None
        assert record.noise is not None
        assert record.noise.scale is not None
        weights.append(1 if record.counts is None else record.counts.readings)
        values.append(record.raw)
        scales.append(record.noise.scale)
    total = sum(weights)
    mean = sum(weight * value for weight, value in zip(weights, values, strict=True)) / total
    return mean, math.hypot(*(math.sqrt(2) * w * b for w, b in zip(weights, scales, strict=True))) / total
