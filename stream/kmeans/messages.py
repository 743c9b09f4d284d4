"""Messages of a live clustering: rounds of the operator, and answers of devices.    [docs/specification/topics.md]

A round has all public parameters of its clustering and the current centres. A device answers each round once: with the
cluster nearest to its own vector by randomised response, and in its first answer with the noisy vector too. The proof:
docs/proofs.md, "Clusterings with devices".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Final

import msgspec
import numpy as np

from hatcast.stream.errors import UNREADABLE, SettingError
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans.setting import MAX_ITERATIONS, ClusteringSetting, slots_of_day, top_of
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy
from hatcast.stream.records.fields import Date, DeviceId, PolicyId, Slot
from hatcast.stream.units import is_short

EPSILON_MAX: Final = 10.0  # a larger epsilon hides hardly anything; policies have the same limit
_SCALES: Final = 40  # accepted noise beyond [0, top], in scales: an honest device exceeds it once in e**40 coordinates


class Round(msgspec.Struct, frozen=True, kw_only=True, tag_field="status", tag="round"):
    """One round of a clustering."""

    clusters_id: str  # `clustering/round`: the record's key
    clustering: DeviceId  # random id: 32 hexadecimal digits
    policy: str
    policy_id: PolicyId
    date: Date
    slots: tuple[Slot, ...]
    epsilon: float
    iterations: int
    seed: int
    round: Annotated[int, msgspec.Meta(ge=1, le=MAX_ITERATIONS)]  # from 1 to `iterations`
    closes: Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # ms UTC: later answers are not counted
    centres: tuple[tuple[Decimal, ...], ...]  # current centres, km/h by slot

    @property
    def parameters(self) -> bytes:
        """The parameters that are the same in all rounds of a clustering."""
        fixed = (self.policy_id, self.date, self.slots, len(self.centres), self.iterations, self.epsilon, self.seed)
        return _ENCODER.encode(fixed)


class ClusterAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer of a device."""

    clustering: DeviceId
    round: int
    id: DeviceId  # of the device in this clustering, random: 32 hexadecimal digits; the record's key
    cluster: int  # index of a cluster, from 0, by randomised response
    vector: tuple[Decimal, ...] | None = None  # noisy vector, km/h by slot; only in the device's first answer


_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_ROUND: Final = msgspec.json.Decoder(Round)
_ANSWER: Final = msgspec.json.Decoder(ClusterAnswer)


def encode(message: Round | ClusterAnswer) -> bytes:
    """Encode a round or an answer."""
    return _ENCODER.encode(message)


def decode_round(raw: bytes) -> Round | None:
    """Decode a round; return None for anything else, such as a result. Never raises."""
    try:
        return _ROUND.decode(raw)
    except (*UNREADABLE, ArithmeticError):
        return None


@dataclass(frozen=True, slots=True, eq=False)
class RoundRequest:
    """A round that a device may answer under its own policy. centres: int64 [K, d], steps."""

    round: Round
    setting: ClusteringSetting
    centres: Integers


def accepted(round_: Round, policy: Policy) -> RoundRequest | None:
    """Return the request of a round; None if it is not one that the policy of the device allows.

    It must name the same policy_id, slots of the policy, no epsilon above EPSILON_MAX, and centres in the cube of the
    policy's upper bound, on its grid.
    """
    slots = slots_of_day(policy)
    if round_.policy_id != policy.policy_id or not 0 < round_.epsilon <= EPSILON_MAX or not round_.slots:
        return None
    if list(round_.slots) != [slot for slot in slots if slot in round_.slots]:
        return None
    top = top_of(policy)
    try:
        setting = ClusteringSetting(
            len(round_.slots), top, len(round_.centres), round_.iterations, round_.epsilon, round_.seed
        )
    except SettingError:
        return None
    centres = [steps_of(centre, policy) for centre in round_.centres]
    if not 1 <= round_.round <= setting.iterations or not all(_is_within(centre, setting) for centre in centres):
        return None
    return RoundRequest(round_, setting, np.array(centres, np.int64))


def _is_within(centre: list[int] | None, setting: ClusteringSetting) -> bool:
    return centre is not None and len(centre) == setting.dimensions and all(0 <= each <= setting.top for each in centre)


def decode_answer(
    raw: bytes, setting: ClusteringSetting, policy: Policy
) -> tuple[ClusterAnswer, list[int] | None] | None:
    """Decode an answer to a clustering; return it with its vector in steps, or None if it is not acceptable.

    A vector must be on the grid and within 40 scales of the noise around the cube, which bounds a device's influence. A
    wrong answer within these limits cannot be told from noise. Never raises.
    """
    try:
        answer = _ANSWER.decode(raw)
    except (*UNREADABLE, ArithmeticError):
        return None
    if not (0 <= answer.cluster < setting.clusters and 1 <= answer.round <= setting.iterations):
        return None
    if answer.vector is None:
        return answer, None
    steps = steps_of(answer.vector, policy)
    beyond = _SCALES * setting.local_scale
    if steps is None or len(steps) != setting.dimensions:
        return None
    if any(not -beyond <= each <= setting.top + beyond for each in steps):
        return None
    return answer, steps


def speeds_of(steps: Sequence[int], policy: Policy) -> tuple[Decimal, ...]:
    """Return coordinates in steps as numbers in the policy's unit, exact, without trailing zeros: 40.0, 21.31."""
    grid = Grid(policy.grid, policy.lower)
    texts = (grid.text(each).partition(".") for each in steps)
    return tuple(Decimal(f"{whole}.{digits.rstrip('0') or '0'}") for whole, _, digits in texts)


def steps_of(speeds: Sequence[Decimal], policy: Policy) -> list[int] | None:
    """Return numbers in the policy's unit as grid steps; None if a number is not on the grid or has too many digits."""
    if not all(map(is_short, speeds)):
        return None
    grid = Grid(policy.grid, policy.lower)
    steps = [grid.steps_above_lower(each) for each in speeds]
    return [each.numerator for each in steps] if all(each.denominator == 1 for each in steps) else None
