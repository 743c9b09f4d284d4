"""Estimates from plain releases: a function of published records alone."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.estimators._interface import Parameters
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy
from hatcast.stream.records import CountsRecord, EstimateRecord, NoiseRecord, ReleaseRecord
from hatcast.stream.release.hats import counts_fields
from hatcast.stream.tracker.observations import noise_variance, read_release, slots_of
from hatcast.stream.tracker.smoother import Smoother, SmootherSetting, estimates_of
from hatcast.stream.tracker.state import SmootherState
from hatcast.stream.tracker.track import ReleaseCalibration
from tests.contracts.goldens import PRESENCE, SPEED

CELLS = [f"8760a000{n:x}ffffff" for n in range(6)]
DATES = ("2022-01-02", "2022-01-03", "2022-01-04")
HOURS = range(9, 21)  # of the policy
SETTING = SmootherSetting.of(SPEED)
COUNTS = CountsRecord(users=8, readings=40, squares=0.16, shift=0.01)


def release(
    cell: str, date: str, hour: int, raw: float, *, scale: float | None = 3.0, policy: Policy = SPEED
) -> ReleaseRecord:
    start = Calendar(policy).slot_named(date, f"{hour:02}:00")
    assert start is not None
    return ReleaseRecord(
        release_id=f"{policy.name}/{date}T{hour:02}:00/{cell}",
        policy_id=policy.policy_id,
        status="released",
        cell=cell,
        date=date,
        slot=f"{hour:02}:00",
        start=Calendar(policy).local(start.start_ms).isoformat(),
        end=Calendar(policy).local(start.end_ms).isoformat(),
        raw=raw,
        noise=NoiseRecord(kind="laplace" if scale is not None else "laplace_ratio", scale=scale),
        interval95=(max(raw - 9, 0), min(raw + 9, 65)),
        counts=COUNTS if policy is SPEED else None,
        estimator=policy.estimator,
        epsilon=1.0,
        relation=policy.relation.value,
        released_at="2022-01-02T04:35:03.120Z",
    )


def city(seed: int = 1, dates: tuple[str, ...] = DATES) -> list[ReleaseRecord]:
    """Releases of a city whose cells differ; not every cell has one in every hour."""
    random = np.random.default_rng(seed)  # simulation
    return [
        release(cell, date, hour, round(20 + 3 * number + float(random.laplace(0, 3)), 3))
        for date in dates
        for hour in HOURS
        for number, cell in enumerate(CELLS)
        if random.random() < 0.7
    ]


def encoded(estimates: list[EstimateRecord]) -> bytes:
    return msgspec.json.Encoder().encode_lines(estimates)


def test_the_order_of_records_and_copies_of_them_change_no_byte() -> None:
    records = city()
    expected = encoded([*estimates_of(SPEED, records)])
    shuffled = [records[at] for at in np.random.default_rng(2).permutation(len(records))]  # simulation
    assert encoded([*estimates_of(SPEED, [*shuffled, *records[::3]])]) == expected


def test_estimates_of_a_slot_do_not_depend_on_later_records() -> None:
    records = city()
    first = [record for record in records if record.date == DATES[0]]
    found, longer = [*estimates_of(SPEED, first)], [*estimates_of(SPEED, records)]
    assert longer[: len(found)] == found


def test_a_smoother_continues_from_a_snapshot_to_the_last_byte() -> None:
    slots = [*slots_of(city())]
    whole, snapshots = Smoother(SETTING), {}
    made: dict[str, list[EstimateRecord]] = {date: [] for date in DATES}
    for slot in slots:
        made[slot.key.date] += whole.add(slot)
        snapshots[whole.date] = whole.snapshot
    for date in DATES:
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshots[date]), type=SmootherState)
        again = Smoother(SETTING, stored)
        assert stored.date == date
        assert encoded([each for slot in slots if slot.key.date == date for each in again.add(slot)]) == encoded(
            made[date]
        )
    # Mutant: without the snapshot the bytes differ.
    fresh = Smoother(SETTING)
    assert encoded([each for slot in slots if slot.key.date == DATES[2] for each in fresh.add(slot)]) != encoded(
        made[DATES[2]]
    )


def test_every_cell_ever_seen_has_one_estimate_in_every_slot_with_a_record() -> None:
    records = [release(CELLS[0], DATES[0], 9, 30), release(CELLS[1], DATES[0], 10, 40)]
    stages = [(each.slot, each.cell, each.stage) for each in estimates_of(SPEED, records)]
    assert stages == [("09:00", CELLS[0], "live"), ("10:00", CELLS[0], "predicted"), ("10:00", CELLS[1], "live")]
    for estimate in estimates_of(SPEED, records):
        assert (estimate.mean is None) == (estimate.residual_z is None) == (estimate.stage == "predicted")


def test_a_listed_cell_has_an_estimate_before_its_first_release() -> None:
    listed = replace(SPEED, cells=frozenset(int(cell, 16) for cell in CELLS[:3]))
    found = [*estimates_of(listed, [release(CELLS[4], DATES[0], 9, 30)])]
    assert [each.cell for each in found] == [*CELLS[:3], CELLS[4]]
    assert [each.stage for each in found] == ["predicted"] * 3 + ["live"]


def test_a_date_is_settled_once_after_its_last_slot_or_before_a_later_date() -> None:
    until_evening = [release(CELLS[0], DATES[0], hour, 30) for hour in (9, 20)]
    assert [each.stage for each in estimates_of(SPEED, until_evening)] == ["live", "live", "settled", "settled"]
    with_next = [*estimates_of(SPEED, [*until_evening, release(CELLS[0], DATES[1], 9, 30)])]
    assert [each.stage for each in with_next] == ["live", "live", "settled", "settled", "live"]
    ends_early = [release(CELLS[0], DATES[0], 9, 30), release(CELLS[0], DATES[1], 9, 30)]
    stages = [(each.date, each.stage) for each in estimates_of(SPEED, ends_early)]
    assert stages == [(DATES[0], "live"), (DATES[0], "settled"), (DATES[1], "live")]


def test_a_hat_without_a_mean_is_predicted() -> None:
    suppressed = msgspec.structs.replace(
        release(CELLS[0], DATES[0], 9, 0), status="suppressed", raw=None, noise=None, interval95=None, counts=None
    )
    (only,) = estimates_of(SPEED, [suppressed])
    assert (only.stage, only.mean, only.road.value) == ("predicted", None, 32.5)


def test_releases_narrow_the_road_and_follow_the_truth() -> None:
    found = {(each.date, each.slot, each.cell): each for each in estimates_of(SPEED, city()) if each.stage != "settled"}
    for number, cell in enumerate(CELLS):
        last = found[DATES[2], "20:00", cell]
        assert abs(last.road.value - (20 + 3 * number)) < 2
        assert last.road.sd < found[DATES[0], "10:00", CELLS[0]].road.sd


def test_under_add_remove_every_listed_cell_is_estimated_without_counts() -> None:
    (cell,) = (f"{number:x}" for number in PRESENCE.cells or ())
    ratio = release(cell, DATES[0], 9, 30.0, scale=None, policy=PRESENCE)
    (only,) = estimates_of(PRESENCE, [ratio])
    assert only.stage == "live"
    # A road with counts of more users is known better.
    more = msgspec.structs.replace(ratio, counts=COUNTS)
    (known,) = estimates_of(PRESENCE, [more])
    assert known.road.sd < only.road.sd


def test_values_and_intervals_stay_within_the_bounds() -> None:
    wild = [release(CELLS[0], DATES[0], hour, 400 if hour % 2 else -300, scale=0.5) for hour in HOURS]
    for estimate in estimates_of(SPEED, wild):
        for normal in (estimate.road, estimate.mean):
            if normal is not None:
                low, high = normal.interval95
                assert 0 <= low <= normal.value <= high <= 65


def test_a_value_without_noise_is_not_an_observation() -> None:
    constant = [release(CELLS[0], DATES[0], hour, 32.5, scale=0.0) for hour in HOURS]
    last = [*estimates_of(SPEED, constant)][-1]
    assert (last.residual_z, last.road.value) == (None, 32.5)
    assert last.road.sd > 10


def test_the_noise_of_a_ratio_is_that_of_the_end_that_is_not_clipped() -> None:
    at_the_top = msgspec.structs.replace(release(CELLS[0], DATES[0], 9, 60, scale=None), interval95=(40.0, 65.0))
    assert noise_variance(at_the_top) == pytest.approx((20 / 1.96) ** 2)
    assert noise_variance(release(CELLS[0], DATES[0], 9, 60, scale=3.0)) == 18


def test_records_of_other_policies_and_other_records_are_left_out() -> None:
    own = release(CELLS[0], DATES[0], 9, 30)
    assert read_release(msgspec.json.encode(own), SPEED) is not None
    for value in (
        b"{}",
        b"not JSON",
        msgspec.json.encode(msgspec.structs.replace(own, release_id=own.release_id.replace(SPEED.name, "other"))),
        msgspec.json.encode(msgspec.structs.replace(own, policy_id=PRESENCE.policy_id)),
    ):
        assert read_release(value, SPEED) is None


def test_surprises_widen_intervals_and_noise_alone_does_not() -> None:
    calm, surprised = ReleaseCalibration(), ReleaseCalibration()
    random = np.random.default_rng(3)  # simulation
    for _ in range(20_000):
        noise = float(random.laplace(0, 10))  # simulation
        calm.add(noise + float(random.normal(0, 5)), 225.0, 200.0)  # simulation
        surprised.add(noise + float(random.normal(0, 10)), 225.0, 200.0)  # simulation
    assert 1 <= calm.factor < 1.6
    assert 3 < surprised.factor < 5


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "capped_ratio"])
def test_counts_of_a_release_are_those_of_the_formula(name: str) -> None:
    counts = np.array([9, 4, 4, 2, 1], np.int64)
    keys = ESTIMATORS[name].keys.defaults
    parameters = Parameters(
        65_000, Grid(SPEED.grid), 1.0, keys.get("grouping"), keys.get("array_length"), keys.get("quantiles")
    )
    found = counts_fields(counts, name, parameters)
    assert (found["users"], found["readings"], found["squares"]) == (5, 20, round(118 / 400, 6))
    if name in ("baseline", "clipped_sum"):
        assert found["shift"] == 0
    if name == "weighted_mean":  # capped at the median, 4
        weights = np.array([4, 4, 4, 2, 1]) / 15
        assert found["shift"] == round(float(((weights - counts / 20) ** 2).sum()), 6)
    if name == "array_averaging":  # arrays of 4: {9}, {4}, {4}, {2, 1}
        weights = np.array([1, 1, 1, 2 / 3, 1 / 3]) / 4
        assert found["shift"] == round(float(((weights - counts / 20) ** 2).sum()), 6)
