"""A HAT in which `clipped_sum` would use nobody's data is suppressed, and costs nothing but a place of K."""

from pathlib import Path
from typing import Any

import pytest

from hatcast.lab.audit.hats import MeanFamily, RandomNumbers
from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import Row, pack
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.records.fields import Status
from hatcast.stream.release.hats import HatChunks, Release, release_of, releases_of
from tests.batching import CONFIG, USERS, batch, config, releases
from tests.folding import HOUR, NOON, record
from tests.support import Scripted

__all__ = ["config"]  # the fixture

CELL = "87608b0d2ffffff"
SLOT = "2022-01-02/12:00"
SECOND: dict[str, Any] = {"name": "delay", "unit": "s", "lower": -60.0, "upper": 60.0, "grid": 1.0}


def policy_of(epsilon: float, min_users: int = 1, values: int = 1) -> Policy:
    table = {
        "name": "test",
        "timezone": "UTC",
        "hours": [12, 13],
        "upper_bound": 65.0,
        "privacy": {"epsilon": epsilon, "max_hats_per_day": 40, "daily_limit": 105.0, "min_users": min_users},
        "estimator": {"name": "clipped_sum"},
    }
    several = {"values": ["speed", "delay"], "value": [SECOND]} if values == 2 else {}
    return read_policy(table | several, ESTIMATOR_KEYS, lambda _: "")


def hat_of(users: int, share: int = 1, values: int = 1) -> HatChunks:
    """A HAT of so many users, each with one reading of a share of sixths of the speed's range."""
    others = (60_000,) * (values - 1)
    speed = share * 10_000
    return HatChunks([pack([Row(user.to_bytes(8, "big"), 1, speed, speed, 1, others) for user in range(users)])])


def both(policy: Policy, hat: HatChunks) -> list[Release]:
    """The release of a HAT in a batch, as the worker and files draw it, and alone."""
    calendar = Calendar(policy)
    (in_batch,) = releases_of(policy, calendar, [(SLOT, CELL, hat)], Scripted([0] * 9))
    return [in_batch, release_of(policy, calendar, SLOT, CELL, hat, Scripted([0] * 9))]


@pytest.mark.parametrize(
    ("epsilon", "values", "least"), [(0.1, 1, 20), (1.0, 1, 2), (0.3, 1, 7), (0.5, 2, 8), (2.0, 2, 2)]
)
def test_with_fewer_users_than_two_over_epsilon_the_hat_is_suppressed_and_not_charged(
    epsilon: float, values: int, least: int
) -> None:
    policy = policy_of(epsilon, values=values)
    for found in both(policy, hat_of(least - 1, values=values)):
        assert (found.status, found.charge, found.estimate, found.counts) == (Status.SUPPRESSED, 0, None, None)
    for found in both(policy, hat_of(least, values=values)):
        assert (found.status, found.charge) == (Status.RELEASED, policy.epsilon_nano)
        assert b'"scale":0,' not in found.record(0)


def test_the_record_of_a_suppressed_hat_is_the_same_whatever_its_users_did() -> None:
    policy = policy_of(0.1)
    (one, _), (other, _) = (both(policy, hat_of(19, share)) for share in (0, 6))
    assert one.record(0) == other.record(0)


def test_the_audit_looks_at_hats_that_are_released() -> None:
    family = MeanFamily(policy_of(0.2))
    drawn = [family.drawn(RandomNumbers(seed)) for seed in range(20)]
    for pair in [*family.worst(), *drawn]:
        assert b'"released"' in pair.one(SystemNoise())[0]


def test_min_users_may_ask_for_more() -> None:
    policy = policy_of(1.0, min_users=5)
    assert [each.status for each in both(policy, hat_of(4))] == [Status.SUPPRESSED] * 2
    assert [each.status for each in both(policy, hat_of(5))] == [Status.RELEASED] * 2


def test_a_suppressed_hat_is_one_of_the_k_of_its_users_and_costs_nothing_of_their_day(
    tmp_path: Path, config: Path
) -> None:
    config.write_text(
        CONFIG.replace("epsilon = 1.0", "epsilon = 0.25")
        .replace("max_hats_per_day = 40", "max_hats_per_day = 1")
        .replace("daily_limit = 105.0", "daily_limit = 0.25")
        .replace("baseline", "clipped_sum")
    )
    path, more = tmp_path / "log.jsonl", [f"more-{number}" for number in range(8)]
    few, all_of_them = USERS[:7], USERS[:7] + more
    path.write_bytes(
        b"\n".join(
            record(vehicle=user, time=at) for at, users in ((NOON, few), (NOON + HOUR, all_of_them)) for user in users
        )
    )
    done = batch(path, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger", "--json")
    first, second = releases(done)
    assert (first["status"], second["status"]) == ("suppressed", "released")
    assert second["counts"]["users"] == len(more), "a place of K was given back"
    again = batch(path, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger", "--json")
    assert again.stdout == done.stdout
