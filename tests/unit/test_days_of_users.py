"""The fold and days: who is one user across them, and which of them a policy counts."""

import pytest

from tests.folding import DAY, HOUR, MINUTE, NOON, apply, contributions, entered, occurring, record
from tests.unit.test_contributions import KM_NORTH, folded


@pytest.mark.parametrize(("unit", "users"), [("user_day", 2), ("user", 1)])
def test_a_vehicle_is_another_user_on_another_day_unless_the_unit_is_the_user(unit: str, users: int) -> None:
    fold = folded(record(), unit=unit, max_hats_per_day=1)
    apply(fold, [(NOON + DAY, record(time=NOON + DAY)), (NOON + DAY, record(time=NOON + DAY, lat=KM_NORTH))])
    assert occurring(fold) == {"accepted": 2, "over_cap": 1}  # K is a day's under both
    assert len({pseudonym for _, _, pseudonym in contributions(fold)}) == users


def test_a_policy_keeps_nothing_of_the_days_before_its_first() -> None:
    fold = folded(record(), max_hats_per_day=1, from_date="2022-01-03", timezone="Asia/Kolkata")
    midnight = NOON + 6 * HOUR + 30 * MINUTE
    apply(fold, [(midnight, record(time=midnight - 1)), (midnight, record(time=midnight))])
    assert occurring(fold) == {"outside_dates": 2, "accepted": 1}
    assert [slot for slot, _, _ in contributions(fold)] == ["2022-01-03/00:00"]
    assert [date for date, _ in entered(fold)] == ["2022-01-03"]
