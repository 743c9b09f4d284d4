"""Release of several values of a HAT: their estimates, and the fields of the record.    [docs/specification/topics.md]

The fields of a single value (`mean`, `raw`, ...) are those of the speed. `values` lists all values, the speed first.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from hatcast.stream.estimators.values import ValueEstimate, values_form
from hatcast.stream.estimators.vectors import VectorUsers
from hatcast.stream.fold.packing import values_columns
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy, Value
from hatcast.stream.release.counts import counts_fields

_OF_ALL: Final = "covers"  # a field that has one meaning for all values


@dataclass(frozen=True, slots=True)
class ValueEstimates:
    """Publishable estimates of a HAT, one for each value of the policy."""

    estimates: tuple[ValueEstimate, ...]


def value_users_of(chunks: Iterable[bytes], values: int) -> VectorUsers:
    """Unpack the users of a HAT in the estimators' order: by count, largest first, ties by pseudonym."""
    read = [values_columns(chunk) for chunk in chunks]
    if not read:
        empty = np.empty(0, np.int64)
        return VectorUsers.sorted(empty.astype(np.uint64), empty, np.empty((0, values), np.int64))
    return VectorUsers.sorted(*(np.concatenate(column) for column in zip(*read, strict=True)))


def estimate_values(
    policy: Policy, chunks: Iterable[bytes], noise: Noise
) -> tuple[ValueEstimates | None, dict[str, Any] | None]:
    """Return the estimates and the record's field `counts`; None if suppressed, as the public counts decide."""
    users = value_users_of(chunks, len(policy.released_values))
    form = values_form(policy)
    estimates = None if len(users.counts) < policy.min_users else form.estimate(users, noise)
    if estimates is None:
        return None, None
    counts = counts_fields(users.counts, policy.estimator, form.axes[0].parameters)
    return ValueEstimates(estimates), counts


def values_fields(found: ValueEstimates, policy: Policy) -> dict[str, Any]:
    """Return the record fields of the estimates."""
    listed = [
        {"name": value.name, **_fields(estimate, value)}
        for value, estimate in zip(policy.released_values, found.estimates, strict=True)
    ]
    return {**_fields(found.estimates[0], policy.released_values[0]), _OF_ALL: "noise", "values": listed}


def published_scales(found: ValueEstimates, policy: Policy) -> list[float]:
    """Return the noise scale of each value as the record has it, in the value's unit."""
    return [
        float(Grid(value.grid).scale_text(each.scale))
        for value, each in zip(policy.released_values, found.estimates, strict=True)
    ]


def _fields(estimate: ValueEstimate, value: Value) -> dict[str, Any]:
    grid = Grid(value.grid)

    def number(steps: int) -> msgspec.Raw:
        return msgspec.Raw(grid.text(steps).encode())

    return {
        "mean": number(estimate.mean),
        "raw": number(estimate.raw),
        "unit": value.unit,
        "noise": {"kind": "laplace", "scale": msgspec.Raw(grid.scale_text(estimate.scale).encode())},
        "interval95": [number(steps) for steps in estimate.interval95],
    }
