"""Readings that polls repeat, whatever other vehicles send."""

from hatcast.agents.sources.filter import KEPT_MS, Repetitions


def test_whether_a_reading_is_repeated_follows_from_its_own_vehicle() -> None:
    """With a table that other vehicles empty, a bus on the road changes which readings of another one are sent."""

    def of_bus(others: int) -> list[bool]:
        there, found = Repetitions(), []
        for poll in range(3):
            found.append(there.is_repeated(b"bus", "12:00", poll * 10_000))
            for number in range(others):
                there.is_repeated(b"%d/%d" % (poll, number), "12:00", poll * 10_000)
        return found

    assert of_bus(0) == of_bus(100_001) == [False, True, True]


def test_a_vehicle_is_known_for_an_hour_after_its_last_poll() -> None:
    there = Repetitions()
    polls = (0, KEPT_MS, 2 * KEPT_MS, 3 * KEPT_MS + 1)
    assert [there.is_repeated(b"bus", "12:00", at) for at in polls] == [False, True, True, False]
    there.is_repeated(b"other", "12:00", 5 * KEPT_MS)
    assert list(there._last) == [b"other"]


def test_the_table_has_a_limit_within_which_known_vehicles_stay() -> None:
    there = Repetitions(vehicles_max=1)
    assert [there.is_repeated(vehicle, 1, 0) for vehicle in (b"a", b"b", b"b", b"a")] == [False, False, False, True]
