"""Golden running means: every window, kind of input, weight and stage."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.running_keys import Running, RunningOf, Window
from hatcast.stream.records import RunningRecord
from hatcast.stream.running.inputs import RunningSetting, SlotInputs, Weights
from hatcast.stream.running.running import RecordMaker, Stage

_FIGURES: Final = (18.118, 1.503, 2.946)  # mean, sd, half width


def running_means(
    policy: Policy, delays: Policy, mixed: Policy, journeys: Policy, cell: str
) -> Iterator[tuple[str, RunningRecord]]:
    """Yield each case with its name, at 09:00 of 2022-01-02."""
    slot = Calendar(policy).slot_named("2022-01-02", "09:00")
    assert slot is not None
    at = SlotInputs(slot.date, slot.name, slot.start_ms, slot.end_ms, {})

    def maker(window: Window, of: RunningOf, weights: Weights, of_policy: Policy, stage: Stage = "live") -> RecordMaker:
        setting = replace(RunningSetting.of(of_policy), weights=weights)
        return RecordMaker(setting, Running(window.value, window, of, 28), at, stage)

    releases, estimates = RunningOf.RELEASES, RunningOf.ESTIMATES
    readings, users, slots = Weights
    yield "today", maker(Window.TODAY, releases, readings, policy).record(cell, 1, *_FIGURES)
    yield "day_users", maker(Window.DAY, releases, users, policy).record(cell, 11, *_FIGURES)
    yield "day_slots", maker(Window.DAY, releases, slots, policy).record(cell, 2, *_FIGURES)
    yield "day_value", maker(Window.DAY, releases, readings, delays).record(cell, 3, 640.4, 31.2, 61.2)
    yield "day_journey", maker(Window.DAY, releases, readings, journeys).record(cell, 3, *_FIGURES)
    yield "day_empty", maker(Window.DAY, releases, readings, policy).empty(cell)
    yield "week_estimates", maker(Window.WEEK, estimates, readings, policy).record(cell, 70, *_FIGURES)
    coarse = min(RunningSetting.of(mixed).value.remainders)
    yield "week_remainder", maker(Window.WEEK, estimates, readings, mixed).record(coarse, 70, *_FIGURES)
    period = Running("morning-peak", Window.PERIOD, releases, 1, (9, 10))
    setting = RunningSetting.of(policy)
    yield "period", RecordMaker(setting, period, at, "live").record(cell, 1, *_FIGURES)
    settled = maker(Window.SAME_HOUR, estimates, readings, policy, "settled")
    yield "same_hour_settled", settled.record(cell, 8, *_FIGURES)
