"""What `hatcast budget explain` says of a tracker policy: a bus can lose `daily_limit`, and no more."""

from hatcast.agents.cli.budget_explained import explanation, figures
from hatcast.agents.worker.readiness import reserved_up_front
from hatcast.stream.budget import day_loss
from hatcast.stream.ledger.day import DayLedger, Reserved, Total, reservations
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.queries import TRACKER_QUERIES
from hatcast.stream.units import NANO
from tests.contracts.goldens import SPEED, TRACKER

DATE = "2022-01-02"


def test_a_bus_can_lose_the_daily_limit_whatever_it_does() -> None:
    assert day_loss(TRACKER).bound == day_loss(TRACKER, DATE).bound == 5 * NANO
    found = figures(TRACKER, 1, "no ledger")
    assert (found["day"]["bound"], found["day"]["epsilon_hats"]) == (5.0, 0.0)
    texts = " ".join(f"{each.heading} {each.text}" for each in explanation(TRACKER, 1, "no ledger"))
    assert "Once it has paid 5 on one day" in texts
    assert "500" not in texts


def test_figures_that_a_tracker_does_not_have_are_left_out() -> None:
    found = figures(TRACKER, 1, "no ledger")
    assert "hat" not in found
    assert "hats" not in found["day"]
    plain = figures(SPEED, 1, "no ledger")
    assert plain["hat"]["epsilon"] == SPEED.epsilon
    assert plain["day"]["hats"] == SPEED.most_hats


def test_the_days_of_a_tracker_compose_and_one_day_is_pure() -> None:
    over, single = figures(TRACKER, 31, "no ledger")["over_days"], figures(TRACKER, 1, "no ledger")["day"]
    assert over["bound"] == 31 * 5
    assert 60 < over["epsilon_delta"]["epsilon"] < 31 * 5
    assert 4.99 < single["epsilon_delta"]["epsilon"] <= 5
    text = " ".join(each.text for each in explanation(TRACKER, 31, "no ledger"))
    assert "31 x 5 = 155" in text


def test_what_a_tracker_reserves_and_another_policys_charges_share_the_day() -> None:
    day, total = DayLedger(), Total()
    day.reserve_if_room(TRACKER, reservations(TRACKER, DATE), total)
    assert day.policies[TRACKER.name].queries[TRACKER_QUERIES].places == 1
    assert not day.charge_if_room(SPEED, "87608b0d2ffffff/09:00", NANO, total), "5 of a limit of 5 are reserved"
    other = DayLedger()
    assert other.charge_if_room(SPEED, "87608b0d2ffffff/09:00", NANO, total)
    other.reserve_if_room(TRACKER, reservations(TRACKER, DATE), total)
    assert other.policies[TRACKER.name].queries[TRACKER_QUERIES].places == 0


def test_a_day_that_only_the_tracker_has_booked_is_not_reported_as_nearly_spent() -> None:
    def summary(**queries: Reserved) -> DaySummary:
        spent = 5 * NANO
        return DaySummary(0, 0, spent, shared=False, limit=spent, sequence=1, levels={}, total=Total(), queries=queries)

    month = Reserved(1, NANO)
    assert reserved_up_front(summary(month=month, tracker=Reserved(1, 4 * NANO))) == 4 * NANO
    assert reserved_up_front(summary(tracker=Reserved(0, 5 * NANO))) == 0, "without room, which has to be seen"
    assert reserved_up_front(summary(month=month)) == 0
    assert reserved_up_front(summary(continual=Reserved(20, NANO))) == 20 * NANO
