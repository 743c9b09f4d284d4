"""Estimates from the records of a value whose prior is a guess: those of the tracker, at the scale of each date."""

from functools import cache

import msgspec
import numpy as np
import pytest

from hatcast.stream.records import ReleaseRecord
from hatcast.stream.tracker.observations import slots_of
from hatcast.stream.tracker.smoother import Smoother, SmootherSetting, estimates_of
from hatcast.stream.tracker.state import SmootherState
from tests.statistics.five_days import seeded
from tests.unit.guessed_city import DATES, POLICY, UPPER, ledger
from tests.unit.test_smoother_tracker import Key, Tracked, sizes, tracked


@cache
def whole() -> Tracked:
    return tracked(POLICY, DATES, ledger(), seeded(2))


def differences(records: list[ReleaseRecord]) -> list[Key]:
    """HATs of which estimates from these records are not the tracker's own."""
    _, own = whole()
    found = {
        (each.date, each.slot, each.cell, "settled" if each.stage == "settled" else "live"): each
        for each in estimates_of(POLICY, records)
        if each.mean is not None
    }
    assert found.keys() == own.keys()
    # A record's estimate has two digits, and clip, weight and noise of a query have six.
    return [
        key
        for key, each in found.items()
        if sizes(each) != pytest.approx(tuple(np.clip(own[key], 0, UPPER)), rel=0.001, abs=0.02)
    ]


def test_estimates_from_records_are_those_of_the_tracker_at_every_scale() -> None:
    records, _ = whole()
    scales = [{each.prior_scale for each in records if each.date == date and each.counts is not None} for date in DATES]
    assert [len(each) for each in scales] == [1] * len(DATES)
    assert len(set.union(*scales)) > 2
    assert differences(records) == []


def test_a_reader_that_ignores_the_scale_has_another_model() -> None:
    records, _ = whole()
    found = differences([msgspec.structs.replace(each, prior_scale=None) for each in records])
    assert {date for date, *_ in found} == {each.date for each in records if each.prior_scale} != set()


@pytest.mark.parametrize("date", DATES)
def test_a_smoother_continues_from_a_snapshot_of_any_date_to_the_last_byte(date: str) -> None:
    records, _ = whole()
    groups = [*slots_of(records)]
    smoother, made, snapshot = Smoother(SmootherSetting.of(POLICY)), [], b""
    for group in groups:
        found = smoother.add(group)
        if group.key.date >= date:
            # The first slot of a date also ends the one before, which another object does not know.
            made += [each for each in found if each.date >= date]
        if smoother.date == date and not snapshot:
            snapshot = msgspec.msgpack.encode(smoother.snapshot)
    again = Smoother(SmootherSetting.of(POLICY), msgspec.msgpack.decode(snapshot, type=SmootherState))
    assert [each for group in groups if group.key > again.taken for each in again.add(group)] == made
    assert again.snapshot == smoother.snapshot
