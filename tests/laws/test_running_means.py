"""Laws of running means: windows by their definition, a function of the records alone, bounded memory."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.running_keys import Running, RunningOf, Window
from hatcast.stream.records import RunningRecord
from hatcast.stream.running.inputs import Inputs, RunningSetting
from hatcast.stream.running.running import RunningWindows, running_means_of, window_means
from hatcast.stream.tracker.observations import ReleasedSlot, slots_of
from hatcast.stream.tracker.smoother import Smoother, SmootherSetting
from tests.contracts.goldens import PRESENCE, SPEED
from tests.laws import running_oracle
from tests.running_releases import CELLS, releases

REACH = {Window.TODAY: 1, Window.DAY: 3, Window.WEEK: 9, Window.SAME_HOUR: 6}
OF_RELEASES = (
    *(Running(each.value, each, RunningOf.RELEASES, days) for each, days in REACH.items()),
    Running("morning", Window.PERIOD, RunningOf.RELEASES, 1, (9, 12)),
    Running("evenings", Window.PERIOD, RunningOf.RELEASES, 6, (16, 19)),
)
OF_ESTIMATES = tuple(replace(each, of=RunningOf.ESTIMATES) for each in OF_RELEASES)
# Clocks go back on 2022-10-30, and forward on 2022-03-27.
BERLIN = replace(SPEED, timezone="Europe/Berlin", hours=(0, 24), slot_length_ms=1_800_000, running=OF_RELEASES)
INDIA = replace(SPEED, running=OF_ESTIMATES)
HIDDEN = replace(PRESENCE, running=OF_RELEASES)


def encoded(means: Sequence[RunningRecord]) -> list[bytes]:
    return [msgspec.json.encode(each) for each in means]


CASES = [(BERLIN, "2022-10-28", 4), (BERLIN, "2022-03-25", 4), (HIDDEN, "2022-01-01", 12)]


@pytest.mark.parametrize(("policy", "first", "days"), CASES)
def test_running_means_of_releases_are_those_of_their_definition(policy: Policy, first: str, days: int) -> None:
    records = releases(policy, first, days, seed=days)
    made = {
        each.running_id.partition("/")[2]: (each.mean.value, each.mean.sd, each.slots)
        for each in running_means_of(policy, records)
        if each.mean is not None
    }
    expected = {name: figures for name, *figures in running_oracle.means(records, policy.running)}
    assert made.keys() == expected.keys()
    for name, (mean, sd, slots) in made.items():
        assert mean == pytest.approx(min(max(expected[name][0], 0), 65), abs=0.006)
        assert sd == pytest.approx(expected[name][1], abs=0.006)
        assert slots == expected[name][2]


@pytest.mark.parametrize("policy", [replace(INDIA, running=OF_RELEASES), INDIA])
def test_the_order_of_records_and_copies_of_them_change_no_byte(policy: Policy) -> None:
    records = releases(policy, "2022-01-01", 5, seed=1)
    shuffled = [records[at] for at in np.random.default_rng(2).permutation(len(records))]  # simulation
    expected = encoded([*running_means_of(policy, records)])
    assert encoded([*running_means_of(policy, [*shuffled, *records[::3]])]) == expected


@pytest.mark.parametrize("policy", [replace(INDIA, running=OF_RELEASES), INDIA])
def test_whoever_continues_from_the_state_of_any_date_makes_the_same_bytes(policy: Policy) -> None:
    setting, records = RunningSetting.of(policy), releases(policy, "2022-01-01", 14, seed=3)
    records = [each for each in records if each.date not in ("2022-01-08", "2022-01-09")]  # a weekend without buses
    smoother, running = Smoother(SmootherSetting.of(policy)), RunningWindows(setting)
    for day, slots in groupby(slots_of(records), lambda each: each.key.date):
        again: RunningWindows | None = None
        for slot in slots:
            smoother.add(slot)
            parts = smoother.day_parts() if policy.running == OF_ESTIMATES else None
            expected = encoded(running.add(slot, parts))
            if again is None:
                assert running.date == day
                again = RunningWindows(setting, [running.date_state(each) for each in running.dates])
            assert encoded(again.add(slot, parts)) == expected


def test_a_cell_that_left_its_window_gets_one_record_without_a_mean() -> None:
    policy = replace(SPEED, running=OF_RELEASES[:1])
    records = releases(policy, "2022-01-01", 1, seed=4)
    lonely = next(record for record in records if record.status == "released" and record.cell == CELLS[0])
    others = [
        record
        for record in releases(policy, "2022-01-02", 2, seed=5)
        if record.status == "released" and record.cell == CELLS[1]
    ]
    made = [each for each in running_means_of(policy, [lonely, *others]) if each.cell == CELLS[0]]
    assert [(each.date, each.slots, each.mean is None) for each in made] == [
        ("2022-01-01", 1, False),
        ("2022-01-02", 0, True),
    ]


def test_a_period_is_left_as_it_is_after_its_end_until_its_date_is_settled() -> None:
    setting, records = RunningSetting.of(INDIA), releases(INDIA, "2022-01-03", 1, seed=8)
    smoother, running = Smoother(SmootherSetting.of(INDIA)), RunningWindows(setting)
    made: dict[str, list[RunningRecord]] = {}
    for slot in slots_of(records):
        smoother.add(slot)
        made[slot.records[0].slot] = running.add(slot, smoother.day_parts())
    names = {hour: {each.name for each in means} for hour, means in made.items()}
    assert {hour for hour, found in names.items() if "morning" in found} == made.keys() & {"09:00", "10:00", "11:00"}
    assert {hour for hour, found in names.items() if "evenings" in found} == made.keys() & {"16:00", "17:00", "18:00"}
    assert "11:00" in made
    assert max(made) > "12:00", "hours come after the morning"
    key = slot.key._replace(is_settlement=True)
    settled = [each for each in running.add(ReleasedSlot(key, []), smoother.day_parts()) if each.name == "morning"]
    assert {(each.slot, each.stage) for each in settled} == {("11:00", "settled")}
    assert {each.start[11:16] for each in settled} == {"09:00"}
    assert {each.end[11:16] for each in settled} == {"12:00"}
    ids = {each.running_id for each in made["11:00"] if each.name == "morning"}
    assert {each.running_id for each in settled} == ids, "so they take the place of those of the period's end"


def test_memory_is_that_of_the_longest_window_however_long_it_runs() -> None:
    policy = replace(INDIA, running=OF_RELEASES)
    running, most = RunningWindows(RunningSetting.of(policy)), max(REACH.values())
    for slot in slots_of(releases(policy, "2022-01-01", 40, seed=6)):
        running.add(slot, None)
        assert len({each.date for each in running._slots}) <= most
        assert len(running._slots) <= most * 12


def test_a_state_of_other_inputs_or_of_another_version_is_refused() -> None:
    records = releases(INDIA, "2022-01-01", 2, seed=7)
    running = RunningWindows(RunningSetting.of(replace(INDIA, running=OF_RELEASES)))
    for slot in slots_of(records):
        running.add(slot, None)
    state = running.date_state("2022-01-01")
    for setting, stored in ((RunningSetting.of(INDIA), state), (RunningSetting.of(BERLIN), state[:-1])):
        with pytest.raises(ValueError, match="date"):
            RunningWindows(setting, [stored])


@given(st.lists(st.floats(0.05, 20.0), min_size=1, max_size=5, unique=True))
def test_intervals_of_sums_of_laplace_noise_cover_at_least_95_percent(scales: list[float]) -> None:
    """P(|sum| > x) = sum_i exp(-x / b_i) prod_(j != i) b_i^2 / (b_i^2 - b_j^2), for different scales b."""
    scales = [scale for at, scale in enumerate(scales) if all(abs(scale / one - 1) > 0.01 for one in scales[:at])]
    rows = [(0, 1.0, 30.0, 0.0, 2 * scale**2, 12 * scale**4) for scale in scales]
    [half_width] = window_means([Inputs.of([row]) for row in rows], 1).half_widths
    beyond = sum(
        math.exp(-half_width * len(scales) / one)
        * math.prod(one**2 / (one**2 - other**2) for other in scales if other != one)
        for one in scales
    )
    assert 0.035 < beyond <= 0.0501


def test_parts_of_a_day_are_the_estimates_of_its_hats() -> None:
    smoother = Smoother(SmootherSetting.of(SPEED))
    records = releases(SPEED, "2022-01-01", 2, seed=8)
    for slot in slots_of(records):
        smoother.add(slot)
    smoother._settled = False
    settled = {(each.cell, each.slot): each.mean for each in smoother.settle()}
    parts = smoother.day_parts()
    assert len(parts.records) == len(settled) > 0
    for record, mean, common, own in zip(parts.records, parts.means, parts.common, parts.own, strict=True):
        expected = settled[record.cell, record.slot]
        assert expected is not None
        assert expected.value == pytest.approx(mean, abs=0.006)
        assert expected.sd == pytest.approx(math.sqrt(common**2 + own), abs=0.006)
