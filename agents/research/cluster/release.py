"""Centres of one clustering, with noise. Whoever calls it has to add up what it costs: no ledger knows of it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hatcast.agents.research.cluster.vectors import Vectors
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.kmeans.devices import Devices
from hatcast.stream.kmeans.lloyd import Clusters, cluster
from hatcast.stream.kmeans.setting import Setting
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.pseudonyms import PSEUDONYM_BYTES

MOST_EPSILON: Final = 10.0  # above it hardly anything is hidden: as for policies


class Blend(StrEnum):
    """Who is asked: both groups, blended by PWH, or one of them."""

    PWH = "pwh"
    TCM_ONLY = "tcm_only"
    LM_ONLY = "lm_only"


@dataclass(frozen=True, slots=True)
class Wish:
    """What to release.

    local   the share of users that count as local devices, from 0 to 1
    """

    setting: Setting
    local: float
    blend: Blend


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """What may be published. central, local: users that were asked, public under `replace`."""

    policy: Policy
    slots: Sequence[str]
    wish: Wish
    central: int
    local: int
    clusters: Clusters

    def record(self) -> dict[str, Any]:
        """For programs; speeds in km/h."""
        grid, setting, found = Grid(self.policy.grid), self.wish.setting, self.clusters
        step = float(grid.milli) / 1000
        return {
            "status": "released",
            "epsilon": setting.epsilon,
            "relation": Relation.REPLACE.value,
            "privacy_unit": self.policy.unit,
            "ledger": None,
            "policy_id": self.policy.policy_id,
            "blend": self.wish.blend.value,
            "iterations": setting.iterations,
            "seed": setting.seed,
            "users": {"central": self.central, "local": self.local},
            "unit": "km/h",
            "slots": list(self.slots),
            "clusters": [
                {
                    "centre": [float(grid.text(each)) for each in found.centres[k].tolist()],
                    "users": round(float(found.users[k]), 1),
                    "noise_deviation": [round(each * step, grid.digits) for each in found.noise[k].tolist()],
                    "central_weight": [round(each, 4) for each in found.weights[k].tolist()],
                    "last_moved": int(found.moved[k]),
                }
                for k in range(setting.clusters)
            ],
        }


def check_relation(policy: Policy) -> None:
    """Raises SettingError for a policy under which the number of users is private."""
    if policy.relation is not Relation.REPLACE:
        raise SettingError(
            "policy.privacy.relation",
            "is add_remove, and K-means is proved for replace only",
            'name a configuration with relation = "replace"',
        )


def release(vectors: Vectors, policy: Policy, wish: Wish, noise: Noise) -> Released:
    """The one answer, for `wish.setting.epsilon` of each user. Raises HatcastError where there is nobody to ask."""
    check_relation(policy)
    local = local_ones(vectors.pseudonyms, wish.local, vectors.key)
    asked = {Blend.PWH: np.ones_like(local), Blend.TCM_ONLY: ~local, Blend.LM_ONLY: local}[wish.blend]
    number = int(asked.sum())
    if number < max(policy.min_users, 1):  # who is there is public under `replace`
        raise HatcastError(
            "fewer users than policy.privacy.min_users: nothing is released; take more files, or both groups"
        )
    mine, theirs = vectors.steps[asked & ~local], vectors.steps[asked & local]
    found = cluster(mine, Devices(theirs, wish.setting, noise), wish.setting, noise)
    return Released(policy, vectors.slots, wish, len(mine), len(theirs), found)


def local_ones(pseudonyms: NDArray[np.uint64], share: float, key: bytes) -> NDArray[np.bool_]:
    """[n] who counts as a local device: a keyed hash below the share. It depends on no speed, and on no other user."""
    below = int(Fraction(share) * 2**64)

    def place(pseudonym: int) -> int:
        message = pseudonym.to_bytes(PSEUDONYM_BYTES, "big")
        return int.from_bytes(hashlib.blake2b(message, digest_size=8, key=key, person=b"hatcast-local").digest(), "big")

    return np.array([place(each) < below for each in pseudonyms.tolist()], np.bool_)
