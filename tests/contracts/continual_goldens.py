"""Golden messages of running sums: every kind and status, made by the code that publishes."""

from collections.abc import Iterator
from typing import Any, Final

from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.fold.packing import Row, pack
from hatcast.stream.policy.continual_keys import ContinualKind
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.records.fields import Status
from hatcast.stream.release.continual import CellHat, ContinualRelease, RunningSums
from hatcast.stream.release.hats import HatChunks
from tests.support import Scripted

SLOTS: Final = ("2022-01-02/09:00", "2022-01-02/10:00")
CELL: Final = "87608b0d2ffffff"
USERS: Final = 41


def continual(kind: ContinualKind) -> Policy:
    """A week of running sums."""
    table: dict[str, Any] = {
        "name": f"surat-week-{kind.value.replace('_', '-')}",
        "upper_bound": 65.0,
        "timezone": "Asia/Kolkata",
        "privacy": {"epsilon": 9.5},
        "continual": {"kind": kind.value, "horizon_days": 7, "max_slots": 14, "max_cells": 20},
    }
    return read_policy(table, ESTIMATOR_KEYS, lambda _: "")


def running_sums() -> Iterator[tuple[str, ContinualRelease]]:
    """Two slots of a cell, one with too few users, one that the budget has no room for, and a lost horizon."""
    sums = RunningSums(continual(ContinualKind.LAPLACE))
    first, second = map(sums.slot, SLOTS)
    (released,) = sums.advance(first, [_hat(USERS)], Scripted([-141_003]))
    yield "continual_laplace_released", released
    yield "continual_budget_exhausted", released.exhausted()
    (released,) = sums.advance(second, [_hat(USERS, released.state)], Scripted([-731_000]))
    yield "continual_laplace_second_slot", released
    (suppressed,) = sums.advance(first, [_hat(3)], Scripted([0]))
    yield "continual_suppressed", suppressed
    (released,) = RunningSums(continual(ContinualKind.GAUSSIAN)).advance(first, [_hat(USERS)], Scripted([-141_003]))
    yield "continual_gaussian_released", released
    for kind in ContinualKind:
        (closed,) = RunningSums(continual(kind)).closed(first, [_hat(USERS)], Status.INCOMPLETE)
        yield f"continual_{kind.value}_incomplete", closed


def _hat(users: int, state: bytes | None = None) -> CellHat:
    rows = [Row(user.to_bytes(8, "big"), 60, 1_800_000 + 71_001 * user, 30_000 + user, 1) for user in range(users)]
    return CellHat(CELL, HatChunks([pack(rows)]), state)
