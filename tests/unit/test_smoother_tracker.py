"""Estimates from a tracker's published queries: those of the tracker itself, from the records alone."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import h3.api.basic_str as h3
import msgspec
import numpy as np
import pytest

from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.mechanisms import LaplaceNoise
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.policy.tracker_keys import TRACKER_ESTIMATOR
from hatcast.stream.records import EstimateRecord, ReleaseRecord
from hatcast.stream.records.fields import query_kind
from hatcast.stream.release.tracker import PolicyTracker
from hatcast.stream.tracker.observations import slots_of
from hatcast.stream.tracker.smoother import Smoother, SmootherSetting, estimates_of
from hatcast.stream.tracker.state import SmootherState
from hatcast.stream.tracker.tracker import HatUsers
from tests.statistics.five_days import seeded
from tests.unit.test_tracker_release import DATES, POLICY, Counting, Ledger

JOURNEY = {
    "name": "journeys",
    "upper_bound": 65.0,
    "timezone": "Asia/Kolkata",
    "drop_zero": False,
    "privacy": {"daily_limit": 5.0},
    "estimator": {"name": "tracker"},
}

Key = tuple[str, str, str, str]
"""date, slot, cell, and `live` or `settled`"""


def numbers(tracker: PolicyTracker) -> Iterator[tuple[str, str, tuple[float, ...]]]:
    """Slot, cell and the tracker's own estimate of each HAT of the day."""
    inner = tracker._tracker
    (found,) = inner.estimates(range(len(inner.schedule.day.hats)))
    for (slot, cell), estimate in zip(tracker._names, found, strict=True):
        sizes = (estimate.road.mean, estimate.road.variance**0.5, estimate.mean.mean, estimate.mean.variance**0.5)
        yield slot, cell, sizes


Tracked = tuple[list[ReleaseRecord], dict[Key, tuple[float, ...]]]
"""Records of some dates, and the tracker's own estimates after each slot and after each settlement"""


def tracked(policy: Policy, dates: Sequence[str], ledger: Ledger, noise: LaplaceNoise) -> Tracked:
    own: dict[Key, tuple[float, ...]] = {}
    tracker = PolicyTracker(policy, None)
    for date in dates:
        tracker.begin_day(date, [])
        for slot, hats in ledger.slots_of(date):
            ledger.commit(tracker.close_slot(slot, hats, noise))
            own |= {(date, name, cell, "live"): size for name, cell, size in numbers(tracker) if name == slot.name}
        ledger.commit(tracker.settle(noise))
        own |= {(date, name, cell, "settled"): size for name, cell, size in numbers(tracker)}
        tracker.end_day()
    return ledger.decoded(), own


@cache
def whole() -> Tracked:
    return tracked(POLICY, DATES, Ledger(), Counting())


def sizes(estimate: EstimateRecord) -> tuple[float, ...]:
    assert estimate.mean is not None
    return estimate.road.value, estimate.road.sd, estimate.mean.value, estimate.mean.sd


def test_estimates_from_records_are_those_of_the_tracker_itself() -> None:
    records, own = whole()
    found = {
        (each.date, each.slot, each.cell, "settled" if each.stage == "settled" else "live"): each
        for each in estimates_of(POLICY, records)
        if each.mean is not None
    }
    assert found.keys() == own.keys()
    assert {each.stage for each in found.values()} == {"live", "predicted", "settled"}
    for key, estimate in found.items():
        clipped = np.clip(own[key], 0, 65)
        # A released value has the policy's grid, a record's estimate two digits.
        assert sizes(estimate) == pytest.approx(tuple(clipped), abs=0.02), key


def test_a_model_without_a_query_of_the_settlement_is_another() -> None:
    records, own = whole()
    last = max(records, key=lambda each: 0 if each.query is None else each.query.sum if each.date == DATES[0] else 0)
    without = [each for each in records if each.release_id != last.release_id]
    found = [each for each in estimates_of(POLICY, without) if each.stage == "settled"]
    assert any(abs(sizes(each)[0] - own[each.date, each.slot, each.cell, "settled"][0]) > 0.1 for each in found)


def test_a_hat_that_is_deferred_is_predicted_until_the_day_is_settled() -> None:
    records, _ = whole()
    status = {(each.date, each.slot, each.cell): each.status for each in records if not query_kind(each.release_id)}
    estimates = [*estimates_of(POLICY, records)]
    stages = {"released": "live", "deferred": "predicted", "suppressed": "predicted"}
    for each in estimates:
        of_hat = status[each.date, each.slot, each.cell]
        if each.stage == "settled":
            assert of_hat in ("released", "deferred")
        else:
            assert each.stage == stages[of_hat]
            assert (each.mean is None) == (of_hat == "suppressed")
            assert (each.residual_z is None) == (of_hat != "released")
    settled = [each for each in estimates if each.stage == "settled"]
    assert len(settled) == sum(each in ("released", "deferred") for each in status.values())
    # A block at the end of the day is about deferred HATs, too.
    assert any(
        each.residual_z is not None and status[each.date, each.slot, each.cell] == "deferred" for each in settled
    )


def test_a_day_is_settled_by_its_settlement_or_by_the_next_day() -> None:
    records, _ = whole()
    first = [each for each in records if each.date == DATES[0]]
    assert [*estimates_of(POLICY, first)][-1].stage == "settled"
    live = [each for each in first if "settlement" not in each.release_id]
    assert all(each.stage != "settled" for each in estimates_of(POLICY, live))
    next_slot = min((each for each in records if each.date == DATES[1]), key=lambda each: each.start)
    stages = [(each.date, each.stage) for each in estimates_of(POLICY, [*live, next_slot])]
    assert stages.index((DATES[0], "settled")) < min(at for at, (date, _) in enumerate(stages) if date == DATES[1])


def test_the_order_of_a_trackers_records_and_copies_of_them_change_no_byte() -> None:
    records, _ = whole()
    shuffled = [records[at] for at in np.random.default_rng(2).permutation(len(records))]  # simulation
    assert [*estimates_of(POLICY, [*shuffled, *records[::5]])] == [*estimates_of(POLICY, records)]


def often(record: ReleaseRecord) -> ReleaseRecord:
    """The record of a second date on which buses send four times as often."""
    if record.counts is None or record.date != DATES[1]:
        return record
    counts = msgspec.structs.replace(record.counts, readings=4 * record.counts.readings)
    return msgspec.structs.replace(record, counts=counts)


def test_a_feed_that_starts_within_an_hour_does_not_move_predictions_of_hexagons_without_readings() -> None:
    policy = read_policy(JOURNEY, {**ESTIMATOR_KEYS, **TRACKER_ESTIMATOR}, lambda _: "")
    *seen, unseen = sorted(h3.grid_disk("8742d9d68ffffff", 2))
    tracker, noise, ledger = PolicyTracker(policy, None), seeded(1), Ledger()
    tracker.begin_day(DATES[0], [])
    buses = np.arange(6, dtype=np.uint64)
    for number, slot in enumerate(each for each in Calendar(policy).slots_of(DATES[0]) if each.outside is None):
        readings = np.full(6, 8 if number else 1)  # of the first hour there are its last minutes
        hats = [HatUsers(cell, buses + 6 * place, readings, readings * 20_000) for place, cell in enumerate(seen)]
        ledger.commit(tracker.close_slot(slot, hats, noise))
    smoother = Smoother(replace(SmootherSetting.of(policy), cells=(unseen,)))
    *_, newest = (smoother.add(group) for group in slots_of(ledger.decoded()))
    roads = {each.cell: each.road.value for each in newest}
    # At the readings of the first slot it would be 14 km/h above the others.
    assert roads.pop(unseen) == pytest.approx(sum(roads.values()) / len(roads), abs=3)


def test_a_smoother_of_a_tracker_continues_from_a_snapshot_to_the_last_byte() -> None:
    records, _ = whole()
    groups = [*slots_of(map(often, records))]
    smoother, made = Smoother(SmootherSetting.of(POLICY)), []
    snapshots = {}
    for group in groups:
        found = smoother.add(group)
        made += found if group.key.date == DATES[1] else []
        snapshots[smoother.date] = smoother.snapshot
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(snapshots[DATES[1]]), type=SmootherState)
    again = Smoother(SmootherSetting.of(POLICY), stored)
    assert [group.key.date for group in groups if group.key > again.taken] == [
        group.key.date for group in groups if group.key.date == DATES[1]
    ]
    assert [each for group in groups if group.key > again.taken for each in again.add(group)] == made


def test_a_query_about_a_hat_without_a_record_is_left_out() -> None:
    records, _ = whole()
    block = next(each for each in records if each.query is not None and len(each.query.hats) > 1)
    assert block.query is not None
    missing = f"{POLICY.name}/{block.date}T{block.query.hats[0][0]}/{block.cell}"
    found = [*estimates_of(POLICY, [each for each in records if each.release_id != missing])]
    assert all(np.isfinite(each.road.value) for each in found)
    assert not any(each.estimate_id == missing for each in found if each.mean is not None)
