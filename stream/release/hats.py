"""Release of a HAT: its estimate, and the bytes of its record.    [docs/specification/topics.md]

Privacy of each field. Under `replace`, cell, date, slot and status depend only on counts, which are public. `mean`,
`raw` and `interval95` depend on values only through the noise. `noise.scale` depends on counts, and on values only
through the interval that `levy` and `quantile` draw for a share of epsilon. `counts` are counts. `released_at` depends
on the worker's clock. `seq` numbers commits, so it reveals the number of HATs with data: counts again.

Under `add_remove` counts are private. `status`, `mean`, `raw` and `interval95` depend on them only through the noise,
which is charged for `suppressed` too. No other field depends on them. There is no `seq` and no scale, and `released_at`
is a public instant.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from hatcast.stream.estimators import ESTIMATORS, Estimate, Parameters, Users
from hatcast.stream.estimators._interface import BeforeNoise, OneDraw
from hatcast.stream.estimators.array_averaging import arrays_of
from hatcast.stream.estimators.grouping import Counts, Weights, weights_in
from hatcast.stream.estimators.values import ValueEstimate, values_form
from hatcast.stream.estimators.vectors import LINEAR, VectorUsers
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import joined_columns, values_columns
from hatcast.stream.hybrid.release import BlendedEstimate, blend_fields, blend_of, device_fields
from hatcast.stream.mechanisms import Noise, Noisy, VectorNoise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import (
    ContinualKeys,
    HybridKeys,
    MeansKeys,
    Policy,
    Relation,
    TrackerKeys,
    ValuesKeys,
)
from hatcast.stream.records.fields import Status
from hatcast.stream.release.placed import Placed
from hatcast.stream.release.spending import fineness_of

_DIGITS: Final = 6  # so that a record does not depend on the order of a float sum


def counts_fields(
    counts: Counts, estimator: str, parameters: Parameters, weights: tuple[Weights, int] | None = None
) -> dict[str, Any]:
    """Return the field `counts` of a released HAT.

    counts      int64 [L], 1 or more: readings of each user, in the estimators' order
    estimator   name of the estimator that the HAT was released with, and its parameters
    weights     those of its estimate, if they are known
    """
    shares, shift = counts / counts.sum(), 0.0
    if (known := weights or _weights(counts, estimator, parameters)) is not None:
        (places, fills), whole = known
        shift = float(np.sum((places / fills / whole - shares) ** 2))
    return {
        "users": len(counts),
        "readings": int(counts.sum()),
        "squares": round(float(np.sum(shares**2)), _DIGITS),
        "shift": round(shift, _DIGITS),
    }


def _weights(counts: Counts, estimator: str, parameters: Parameters) -> tuple[Weights, int] | None:
    """Return the weights of users' means in the estimator, as `Linear.weights`; None for those of the plain mean.

    For an estimator that clips, those of the value before clipping.
    """
    if estimator in LINEAR:
        return LINEAR[estimator].weights(counts, parameters)
    if parameters.grouping is None:
        return None
    arrays = arrays_of(counts, parameters)
    return weights_in(counts, arrays), arrays.number


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
        {"name": value.name, **_number_fields(estimate, Grid(value.grid), value.unit)}
        for value, estimate in zip(policy.released_values, found.estimates, strict=True)
    ]
    first = policy.released_values[0]
    return {**estimate_fields(found.estimates[0], Grid(first.grid), first.unit), "values": listed}


def is_charged(status: str, relation: str) -> bool:
    """Return whether noise was drawn: under `add_remove` this includes suppressed HATs, where the noise decides."""
    return status == Status.RELEASED or (status == Status.SUPPRESSED and relation == Relation.ADD_REMOVE)


AnyEstimate = Estimate | BlendedEstimate | ValueEstimates
_Estimated = tuple[AnyEstimate | None, Mapping[str, Any] | None]
"""A HAT's estimate, None if suppressed, and the field `counts` of its record, None without one."""


@dataclass(frozen=True, slots=True)
class HatChunks:
    """Packed contributions of a HAT from all partitions, in any order: of readings, and of devices' reports."""

    readings: Sequence[bytes]
    reports: Sequence[bytes] = ()


Hat = tuple[str, str, HatChunks]  # slot (`date/name`), cell, contributions


@dataclass(frozen=True, slots=True)
class Release(Placed):
    """The release of one HAT, before the ledger assigns its `seq`."""

    estimate: AnyEstimate | None  # None unless the status is `released`
    counts: Mapping[str, Any] | None = None  # the record's field `counts`; None unless it has one

    @property
    def charge(self) -> int:
        """Charge in 1e-9 epsilon: the policy's epsilon, or 0 if no noise was drawn."""
        return self.policy.epsilon_nano if is_charged(self.status, self.policy.relation) else 0

    @property
    def fineness(self) -> int:
        """Fineness of the noise, equal to what `fineness_of` derives from the published record."""
        scales: list[float | None] = [None]
        if isinstance(self.estimate, ValueEstimates):
            values = zip(self.policy.released_values, self.estimate.estimates, strict=True)
            scales = [float(Grid(value.grid).scale_text(each.scale)) for value, each in values]
        elif isinstance(self.estimate, Estimate) and self.estimate.scale is not None:
            scales = [float(Grid(self.policy.grid).scale_text(self.estimate.scale))]
        return fineness_of(self.policy)(scales)

    def exhausted(self) -> "Release":
        """Return the release of this HAT with status `budget_exhausted` and without the estimate."""
        return replace(self, status=Status.BUDGET_EXHAUSTED, estimate=None, counts=None)

    def fields(self) -> Mapping[str, Any]:
        """Return the record's fields from the estimate on."""
        policy, unit, fields = self.policy, self.policy.released_value.unit, dict[str, Any]()
        if isinstance(self.estimate, BlendedEstimate):
            fields |= blend_fields(self.estimate, policy, unit)
        elif isinstance(self.estimate, ValueEstimates):
            fields |= values_fields(self.estimate, policy)
        elif self.estimate is not None:
            fields |= estimate_fields(self.estimate, Grid(policy.grid, policy.lower), unit)
        if self.counts is not None:
            fields["counts"] = self.counts
        return fields | {"estimator": policy.estimator, "epsilon": policy.epsilon, **device_fields(policy)}


def releases_of(
    policy: Policy, calendar: Calendar, hats: Sequence[Hat], noise: Noise, closed: Status | None = None
) -> list[Release]:
    """Estimate final HATs, including their noise; each as `release_of` does.

    closed   status of HATs that nothing is drawn for: `incomplete` on a day with deleted records, `budget_exhausted`
             where the budget has no room; None: all are drawn
    """
    if closed is not None:
        return [undrawn_release(policy, calendar, slot, cell, closed) for slot, cell, _ in hats]
    estimator = _one_draw(policy)
    if estimator is None:
        return [release_of(policy, calendar, *hat, noise) for hat in hats]
    parameters, least = Parameters.of(policy), least_users(policy)
    numbers: list[BeforeNoise] = []
    counts: list[dict[str, Any] | None] = []
    for _, _, chunks in hats:
        users = users_of(chunks.readings)
        if len(users.counts) >= least:
            numbers.append(estimator.before_noise(users, parameters))
            counts.append(counts_fields(users.counts, policy.estimator, parameters, numbers[-1].weights))
        else:
            counts.append(None)
    drawn = zip(numbers, draw_together(numbers, noise), strict=True)
    estimates = (number.estimate(noisy) for number, noisy in drawn)
    return [
        _drawn_release(policy, calendar, slot, cell, (None if fields is None else next(estimates), fields))
        for (slot, cell, _), fields in zip(hats, counts, strict=True)
    ]


def _one_draw(policy: Policy) -> OneDraw | None:
    """Return the estimator of a policy whose HATs get one draw each; None if a HAT gets several, or devices' noise."""
    if isinstance(policy.method, ValuesKeys | HybridKeys):
        return None
    estimator = ESTIMATORS[policy.estimator]
    return estimator if isinstance(estimator, OneDraw) else None


def draw_together(numbers: Sequence[BeforeNoise], noise: VectorNoise) -> list[Noisy]:
    """Add independent noise to each number, for its own distance and epsilon.

    One call draws for all numbers with one distance and epsilon. It returns only if the privacy map of its noise
    confirms this epsilon for this distance, so the claim of each number is compared with the scale that it gets.
    [docs/proofs.md, Noise drawn for many HATs at once]
    """
    together: dict[tuple[int, float], list[int]] = {}
    for index, number in enumerate(numbers):
        together.setdefault((number.distance, number.epsilon), []).append(index)
    found: dict[int, Noisy] = {}
    for (distance, epsilon), indexes in together.items():
        values = np.array([numbers[index].value for index in indexes], np.int64)
        drawn = noise.laplace_many(values, distance, epsilon)
        for index, value in zip(indexes, drawn.values.tolist(), strict=True):
            found[index] = Noisy(value, drawn.scale)
    return [found[index] for index in range(len(numbers))]


def release_of(policy: Policy, calendar: Calendar, slot: str, cell: str, chunks: HatChunks, noise: Noise) -> Release:
    """Estimate a final HAT, including its noise. `slot` is `date/name`."""
    drawn: _Estimated
    match policy.method:
        case ValuesKeys():
            drawn = estimate_values(policy, chunks.readings, noise)
        case HybridKeys():
            drawn = blend_of(policy, users_of(chunks.readings), chunks.reports, noise), None
        case MeansKeys():
            drawn = _estimate(policy, users_of(chunks.readings), noise)
        case TrackerKeys() | ContinualKeys():
            raise TypeError(f"a release of another kind: {policy.estimator}")
    return _drawn_release(policy, calendar, slot, cell, drawn)


def _drawn_release(policy: Policy, calendar: Calendar, slot: str, cell: str, drawn: _Estimated) -> Release:
    """Return the release of a HAT from its drawn estimate; without one it is suppressed."""
    status = Status.SUPPRESSED if drawn[0] is None else Status.RELEASED
    return undrawn_release(policy, calendar, slot, cell, status, drawn)


def undrawn_release(
    policy: Policy, calendar: Calendar, slot: str, cell: str, status: Status, drawn: _Estimated = (None, None)
) -> Release:
    """Return the release of a HAT with this status; without an estimate it costs nothing under `replace`."""
    named = calendar.stored_slot(slot)
    return Release(
        policy=policy,
        slot=named,
        cell=cell,
        start=calendar.local(named.start_ms),
        end=calendar.local(named.end_ms),
        status=status,
        estimate=drawn[0],
        counts=drawn[1],
    )


def users_of(chunks: Iterable[bytes]) -> Users:
    """Unpack the users of a HAT in the estimators' order: by count, largest first, ties by pseudonym."""
    if not (read := list(chunks)):
        empty = np.empty(0, np.int64)
        return Users.sorted(empty.astype(np.uint64), empty, empty)
    return Users.sorted(*joined_columns(read))


def _estimate(policy: Policy, users: Users, noise: Noise) -> _Estimated:
    if len(users.counts) < least_users(policy):
        return None, None
    estimator, parameters = ESTIMATORS[policy.estimator], Parameters.of(policy)
    if isinstance(estimator, OneDraw):
        before = estimator.before_noise(users, parameters)
        counts = counts_fields(users.counts, policy.estimator, parameters, before.weights)
        return before.estimate(noise.laplace(before.value, before.distance, before.epsilon)), counts
    estimate = estimator.estimate(users, parameters, noise)
    if estimate is None or policy.relation is not Relation.REPLACE:
        return estimate, None
    return estimate, counts_fields(users.counts, policy.estimator, parameters)


def least_users(policy: Policy) -> int:
    """Return how many users a HAT needs for a mean: `min_users`, or more if the estimator needs more.

    Under `replace` their number is public, so it may decide. Under `add_remove` it may not, and this is 0.
    """
    match policy.method:
        case ValuesKeys():
            return max(policy.min_users, values_form(policy).least_users)
        case MeansKeys():
            return max(policy.min_users, ESTIMATORS[policy.estimator].least_users(Parameters.of(policy)))
        case HybridKeys() | TrackerKeys() | ContinualKeys():
            return max(policy.min_users, 1)


def estimate_fields(estimate: Estimate | ValueEstimate, grid: Grid, unit: str) -> dict[str, Any]:
    """Return the record fields of an estimate. unit: the name of 1000 milli-units."""
    return {**_number_fields(estimate, grid, unit), "covers": "noise"}


def _number_fields(estimate: Estimate | ValueEstimate, grid: Grid, unit: str) -> dict[str, Any]:
    noise: dict[str, Any] = {"kind": "laplace_ratio"}
    if estimate.scale is not None:
        noise = {"kind": "laplace", "scale": grid.scale_json(estimate.scale)}
    return {
        "mean": grid.json(estimate.mean),
        "raw": grid.json(estimate.raw),
        "unit": unit,
        "noise": noise,
        "interval95": [*map(grid.json, estimate.interval95)],
    }
