"""Laws of `[policy.value]`: a tracker, its estimates, devices and clusterings are those of a range that begins at 0."""

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.hybrid import HYBRID_KEYS, HybridParameters, accepts, report, steps_of
from hatcast.stream.kmeans import messages
from hatcast.stream.kmeans.setting import top_of
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.policy.tracker_keys import TRACKER_ESTIMATOR
from hatcast.stream.records import EstimateRecord, NormalRecord, ReleaseRecord
from hatcast.stream.records.fields import query_kind
from hatcast.stream.tracker.smoother import estimates_of
from tests.support import Scripted
from tests.unit.test_tracker_release import DATES, Counting, Ledger

LOWERS = (-600.0, -65.0, 1000.0)
every_lower = pytest.mark.parametrize("lower", LOWERS)
PRIVACY = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 105.0}


def policy(lower: float, **changes: Any) -> Policy:
    """Of a value whose range is 65 wide, as that of speeds."""
    table = {
        "name": "surat-tracker",
        "timezone": "Asia/Kolkata",
        "privacy": {"daily_limit": 5.0},
        "estimator": {"name": "tracker"},
        "value": {"name": "v", "unit": "u", "lower": lower, "upper": lower + 65},
    }
    return read_policy(table | changes, {**ESTIMATOR_KEYS, **HYBRID_KEYS, **TRACKER_ESTIMATOR}, lambda _: "")


def tracked(lower: float) -> list[ReleaseRecord]:
    ledger = Ledger()
    ledger.run(Counting(), DATES, policy(lower))
    return ledger.decoded()


@every_lower
def test_a_tracker_makes_the_same_queries_and_its_means_are_moved(lower: float) -> None:
    for moved, plain in zip(tracked(lower), tracked(0.0), strict=True):
        assert (moved.value, moved.unit) == ("v", None if moved.mean is None else "u")
        assert (moved.query, moved.counts, moved.status) == (plain.query, plain.counts, plain.status)
        if plain.raw is not None:
            assert numbers_of(moved) == pytest.approx([each + lower for each in numbers_of(plain)], abs=1e-9)


def numbers_of(record: ReleaseRecord) -> list[float]:
    assert record.mean is not None
    assert record.raw is not None
    assert record.interval95 is not None
    return [record.mean, record.raw, *record.interval95]


@every_lower
@pytest.mark.parametrize("estimator", ["tracker", "array_averaging"])
def test_estimates_are_moved_with_the_range_and_name_the_value(lower: float, estimator: str) -> None:
    changes = {} if estimator == "tracker" else {"privacy": PRIVACY, "estimator": {"name": estimator}}
    moved, plain = (list(estimated(policy(each, **changes), each)) for each in (lower, 0.0))
    assert len(moved) == len(plain) > 50
    for one, other in zip(moved, plain, strict=True):
        assert (one.value, one.unit, one.stage, one.residual_z) == ("v", "u", other.stage, other.residual_z)
        sd, *plain_numbers = shown(other.road)
        assert shown(one.road) == pytest.approx([sd, *(each + lower for each in plain_numbers)], abs=0.0101)
        assert lower <= one.road.interval95[0] <= one.road.value <= one.road.interval95[1] <= lower + 65


def shown(normal: NormalRecord) -> list[float]:
    return [normal.sd, normal.value, *normal.interval95]


def estimated(of: Policy, lower: float) -> Iterator[EstimateRecord]:
    """Estimates of a tracker's records, read as those of the policy."""
    records = tracked(lower)
    if not of.method.settles_days:
        records = [msgspec.structs.replace(each, query=None) for each in records if not query_kind(each.release_id)]
    return estimates_of(of, records)


def test_estimates_of_a_narrow_range_have_more_digits() -> None:
    narrow = {"name": "share", "unit": "1", "lower": 0, "upper": 0.065}
    of = policy(0.0, value=narrow, privacy=PRIVACY, estimator={"name": "array_averaging"})
    (record,) = [each for each in tracked(0.0) if each.raw is not None and not query_kind(each.release_id)][:1]
    scaled = msgspec.structs.replace(record, query=None, mean=0.0213, raw=0.0213, interval95=(0.0113, 0.0313))
    assert record.noise is not None
    noise = msgspec.structs.replace(record.noise, scale=0.005)
    (estimate, *_) = estimates_of(of, [msgspec.structs.replace(scaled, noise=noise)])
    assert 0 < estimate.road.sd < 0.02
    assert estimate.road.interval95[0] < estimate.road.value < estimate.road.interval95[1] <= 0.065


@given(st.integers(-100, 65_100), st.integers(-100_000, 100_000), st.sampled_from([-600_000, 0, 7_000]))
def test_a_devices_report_is_in_the_values_unit_and_is_read_as_it_was_sent(mean: int, draw: int, lower: int) -> None:
    of = policy(lower / 1000, privacy=PRIVACY, estimator={"name": "pwh"})
    parameters = HybridParameters.of(of)
    steps = report(Fraction(mean), parameters, Scripted([draw]))
    assert steps == min(max(mean, 0), 65_000) + draw
    value = Decimal(parameters.grid.text(steps))
    assert value * 1000 == lower + steps
    assert accepts(value, 1.0, parameters)
    assert steps_of(value, parameters) == steps
    assert not accepts(value + Decimal("0.0001"), 1.0, parameters)
    assert not accepts(Decimal(lower) / 1000 + 65 * 42, 1.0, parameters)


@given(st.lists(st.integers(-10_000, 80_000), min_size=1, max_size=4), st.sampled_from(LOWERS))
def test_centres_of_clusterings_are_in_the_values_unit_and_are_read_as_they_were_written(
    steps: list[int], lower: float
) -> None:
    of = policy(lower, privacy=PRIVACY, estimator={"name": "pwh"})
    assert top_of(of) == 65_000
    written = messages.speeds_of(steps, of)
    assert [*written] == [Decimal(lower) + Decimal(each) / 1000 for each in steps]
    assert messages.steps_of(written, of) == steps
