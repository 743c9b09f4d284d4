"""Caches of what records send are bounded in bytes, not only in entries."""

from hatcast.stream.readings.reading import cache
from hatcast.stream.replay.heartbeats import Router
from tests.folding import NOON, apply, fold_of, occurring, record
from tests.replayed import policy_of

LONG = 10_000
KEYS = 1_000


def test_a_full_cache_is_emptied_before_the_next_entry() -> None:
    entries: dict[str, int] = {}
    for number in range(7):
        assert cache(entries, str(number), number, 3) == number
    assert entries == {"6": 6}


def test_a_long_text_is_not_cached() -> None:
    entries: dict[str, int] = {}
    assert cache(entries, "v" * LONG, 1, 3) == 1
    assert entries == {}


def test_a_number_of_thousands_of_digits_is_not_cached() -> None:
    entries: dict[int | float, int] = {}
    for number in (10**4_000, -(10**4_000), 2**63, 1.5):
        cache(entries, number, 1, 3)
    assert [*entries] == [2**63, 1.5]


def test_a_fold_keeps_nothing_of_long_ids_and_times() -> None:
    fold = fold_of(policy_of())
    sent = [record(vehicle=f"{number:05}" + "v" * LONG) for number in range(KEYS)]
    sent += [record(time=f"{number:05}" + "T" * LONG) for number in range(KEYS)]
    apply(fold, [(NOON, value) for value in sent])
    assert occurring(fold) == {"undecodable": KEYS, "bad_time": KEYS}
    assert sum(map(len, fold._vehicles)) + sum(len(str(time)) for time in fold._times) < LONG


def test_an_id_within_much_white_space_is_a_vehicle_like_any_other() -> None:
    fold = fold_of(policy_of())
    padded = record(vehicle=" " * LONG + "bus")
    apply(fold, [(NOON, record()), (NOON, padded), (NOON, padded)])
    assert occurring(fold) == {"accepted": 1, "duplicate": 2}


def test_a_router_keeps_nothing_of_long_ids() -> None:
    router = Router(8, lambda key, partitions: len(key) % partitions)
    for number in range(KEYS):
        assert router.route(f"{number:05}" + "v" * LONG) is None
        assert router.route(" " * LONG + f"{number}") is not None
    assert sum(map(len, router._routes)) < LONG
