"""Golden running means: every window, kind of input, weight and stage."""

from collections.abc import Iterator
from typing import Any, Final

from hatcast.stream.policy.policy import Policy
from hatcast.stream.records import NormalRecord, RunningRecord

_END: Final = "2022-01-02T10:00:00+05:30"
_MEAN: Final = NormalRecord(value=18.12, sd=1.5, interval95=(15.18, 21.06))


def running_means(policy: Policy, cell: str) -> Iterator[tuple[str, RunningRecord]]:
    """Yield each case with its name."""
    name = policy.name

    def record(of: str, window: str, start: str, **fields: Any) -> RunningRecord:
        given = {"unit": "km/h", "stage": "live", "of": of, "slots": 1, "weights": "readings", "mean": _MEAN, **fields}
        return RunningRecord(
            running_id=f"{name}/{window}/2022-01-02T09:00/{cell}",
            policy=name,
            policy_id=policy.policy_id,
            name=window,
            window=window,  # type: ignore[arg-type]  # one of its names
            cell=cell,
            date="2022-01-02",
            slot="09:00",
            start=f"{start}T00:00:00+05:30" if window != "24h" else f"{start}T10:00:00+05:30",
            end=_END,
            **given,
        )

    yield "today", record("releases", "today", "2022-01-02")
    yield "day_users", record("releases", "24h", "2022-01-01", weights="users", slots=11)
    yield "week_estimates", record("estimates", "7d", "2021-12-26", slots=70)
    yield "same_hour_settled", record("estimates", "same_hour", "2021-12-06", slots=8, stage="settled")
    yield "day_slots", record("releases", "24h", "2022-01-01", weights="slots", slots=2)
    yield "day_value", record("releases", "24h", "2022-01-01", value="delay", unit="s", remainder=True)
    yield "day_empty", record("releases", "24h", "2022-01-01", slots=0, weights=None, mean=None)
