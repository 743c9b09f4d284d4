"""What a tracker takes, how it values a query, and what another query of the same HAT adds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from hatcast.stream.policy.tracker_keys import TrackerKeys
from hatcast.stream.tracker.counts import DayCounts, HatCounts
from hatcast.stream.tracker.model import Covariance
from hatcast.stream.tracker.prior import Prior, Variances
from hatcast.stream.tracker.query import Members, ResidualQuery, designs_of, members_of, query_of
from hatcast.stream.tracker.schedule import Appraisal, Balances, Outlook
from hatcast.stream.tracker.tracker import HatUsers, Tracker
from hatcast.stream.units import NANO

VARIANCES = Variances()
READINGS = [(1, 1, 30), (60, 2, 7)]


def hat(cell: str, counts: Sequence[int] = (3, 4, 5)) -> HatUsers:
    readings = np.array(counts, np.int64)
    return HatUsers(cell, np.arange(len(readings), dtype=np.uint64), readings, readings * 30_000)


def tracker() -> Tracker:
    made = Tracker(TrackerKeys(5 * NANO, price=0.001), Prior.of(65.0))
    made.begin_day()
    return made


@pytest.mark.parametrize(
    ("hour", "hats", "error"),
    [
        (24, [hat("a")], "0 to 23, not 24"),
        (-1, [hat("a")], "0 to 23, not -1"),
        (9, [hat("b"), hat("a")], "ascending order of cells"),
        (9, [hat("a"), hat("a")], "ascending order of cells"),
        (9, [hat("a"), hat("b", [])], "has no users"),
        (9, [replace(hat("a"), sums=np.array([1, 2]))], "one count and one sum of each"),
        (9, [hat("a", [3, 0])], "no readings"),
    ],
)
def test_hats_that_would_make_meaningless_numbers_are_rejected_before_anything_changes(
    hour: int, hats: Sequence[HatUsers], error: str
) -> None:
    made = tracker()
    before = made.state("policy", "date")
    with pytest.raises(ValueError, match=error):
        made.close_slot(0, hour, hats)
    assert made.state("policy", "date") == before


def one_cell() -> tuple[DayCounts, Covariance]:
    """Two HATs of one cell, in which the same three buses have unequal numbers of readings."""
    covariance, day = Covariance(VARIANCES), DayCounts(VARIANCES)
    covariance.add_cells(1)
    day.add([HatCounts(0, 8 + at, np.arange(3), np.array(counts)) for at, counts in enumerate(READINGS)])
    covariance.add_hats(day.hats)
    return day, covariance


def members(day: DayCounts, covariance: Covariance, *hats: int) -> Members:
    of_hats = [np.arange(day.hats[number].first, day.hats[number].end) for number in hats]
    return members_of(np.concatenate(of_hats), day, covariance)


PAYMENTS = np.full(3, NANO)


def test_queries_of_one_hat_have_new_noise_but_share_the_sampling_of_their_buses() -> None:
    day, covariance = one_cell()
    asked = members(day, covariance, 1)
    first = designs_of(asked, np.ones((1, 3)), day, covariance)
    sampling, noise = first.sampling[0], first.rest[0] - first.sampling[0]
    assert sampling > 1
    for number in (2, 3, 1000):  # queries of the HAT
        covariance.alone[1] = sampling + noise / (number - 1), sampling
        rest = designs_of(asked, np.ones((1, 3)), day, covariance).rest[0]
        together = 1 / (1 / covariance.alone[1, 0] + 1 / rest)
        assert together == pytest.approx(sampling + noise / number)


def test_a_bus_with_few_readings_tells_less_and_pays_less() -> None:
    day, covariance = one_cell()
    asked = members(day, covariance, 1)
    query = Appraisal(np.ones(2), day, covariance, Balances(5 * NANO)).query(
        [asked.contributions], np.array([1]), Outlook(covariance, np.ones(1), 1), 1.0
    )
    assert query is not None
    of_readings = np.argsort(READINGS[1])
    assert (np.diff(query.payments[of_readings]) > 0).all()
    assert query.payments * asked.own == pytest.approx((query.payments * asked.own).mean(), rel=1e-6)


def test_queries_of_one_hat_are_counted_together_on_its_day() -> None:
    day, covariance = one_cell()
    queries = [query_of(members(day, covariance, 1), PAYMENTS, day, covariance) for _ in range(3)]
    precision = sum(1 / query.observation.variance for query in queries)
    assert covariance.alone[1, 0] == pytest.approx(1 / precision)
    assert covariance.alone[1, 1] < covariance.alone[1, 0] < queries[0].observation.variance
    covariance.begin_day()
    assert len(covariance.alone) == 0


def test_a_query_of_a_hat_that_was_not_queried_alone_has_all_of_its_variance() -> None:
    day, covariance = one_cell()
    query_of(members(day, covariance, 0, 1), PAYMENTS, day, covariance)
    query_of(members(day, covariance, 0), PAYMENTS, day, covariance)
    assert np.isinf(covariance.alone[1]).all()
    assert np.isfinite(covariance.alone[0]).all()


def test_a_query_without_a_hats_own_buses_tells_nothing_of_its_own_deviation() -> None:
    day, covariance = one_cell()
    values = np.ones(2)
    appraisal = Appraisal(values, day, covariance, Balances(5 * NANO))
    asked = members(day, covariance, 0)
    designs = designs_of(asked, np.ones((1, 3)), day, covariance)

    def gain(hats: Sequence[int]) -> float:
        of_hats = appraisal._gain_today(asked, designs, np.array(hats))
        return float(of_hats[0])

    assert gain([0, 1]) == pytest.approx(gain([0]) + gain([1]))
    assert gain([1]) < gain([0])
    known = gain([1])
    designs.betas[:] *= 2
    assert gain([1]) == known


def pulse_of(
    hats: Sequence[HatUsers], price: float = 0.001, min_users: int = 1
) -> tuple[Tracker, ResidualQuery | None]:
    made = Tracker(TrackerKeys(5 * NANO, price=price), Prior.of(65.0), min_users=min_users)
    made.begin_day()
    first = next(made.close_slot(0, 9, hats), None)
    return made, None if first is None or first.members.is_of_one_cell else first


TWO_CELLS = [hat("a"), hat("b", (7, 8, 9))]


def test_a_pulse_is_the_first_query_of_a_slot_and_pays_for_no_contribution() -> None:
    made, pulse = pulse_of(TWO_CELLS)
    assert pulse is not None
    assert pulse.members.contributions.tolist() == [0, 1, 2, 3, 4, 5]
    assert pulse.members.buses.tolist() == [0, 1, 2]  # each bus of both cells has one term, and one charge
    assert made.schedule.balances.spent(3).tolist() == pulse.charges.tolist()
    assert made.schedule._is_unpaid.all()


def test_a_pulse_leaves_what_is_not_of_the_live_share() -> None:
    _, pulse = pulse_of(TWO_CELLS)
    assert pulse is not None
    assert 0 < pulse.payments.max() <= 0.3 * 5 * NANO


def test_a_pulse_that_is_not_worth_its_price_is_not_made() -> None:
    assert pulse_of(TWO_CELLS, price=1e6)[1] is None


def test_a_pulse_has_at_least_min_users_buses_in_all() -> None:
    assert pulse_of(TWO_CELLS, min_users=3)[1] is not None
    assert pulse_of(TWO_CELLS, min_users=4)[1] is None


def test_a_slot_of_one_hat_has_no_pulse() -> None:
    assert pulse_of(TWO_CELLS[:1])[1] is None


def test_the_spread_of_a_bus_in_a_pulse_counts_each_of_its_cells_by_its_share() -> None:
    covariance, day = Covariance(VARIANCES), DayCounts(VARIANCES)
    covariance.add_cells(2)
    covariance.variance[:] = 10.0, 40.0
    day.add([HatCounts(cell, 8, np.arange(1 + cell), np.array([3, 5][: 1 + cell])) for cell in range(2)])
    covariance.add_hats(day.hats)
    asked = members_of(np.arange(3), day, covariance)
    level = VARIANCES.city + VARIANCES.day + VARIANCES.hat
    assert asked.within.tolist() == [0.5, 0.5, 1.0]
    assert asked.spread**2 == pytest.approx(asked.own + level + [0.25 * 10 + 0.25 * 40, 40])
