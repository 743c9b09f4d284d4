"""Private release of one clustering's centres. No ledger records its charge: the caller has to account for it."""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hatcast.agents.batch.fold import FoldJob, fold_dump, fold_recording
from hatcast.agents.batch.retention import RetainChunks
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.dump import DUMP, Dump
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.worker.folds import fold_maker
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import columns
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.kmeans.groups import Devices
from hatcast.stream.kmeans.lloyd import Clusters, cluster
from hatcast.stream.kmeans.setting import ClusteringSetting, Contributions, hat_vectors, slots_of_day
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.readings.formats import Format
from hatcast.stream.readings.vehicles import KEY_BYTES, PSEUDONYM_BYTES, Pseudonyms


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Users' vectors. Everything is private except the shape."""

    slots: Sequence[str]  # [d] coordinates
    pseudonyms: NDArray[np.uint64]  # [n] ascending
    steps: Integers  # int64 [n, d] mean speeds in grid steps, in [0, upper bound]
    key: bytes  # user key of the pseudonyms


def select_slots(policy: Policy, wanted: Sequence[str] | None) -> list[str]:
    """Return the coordinates in the order of the day. None: all slots of the policy's hours. Raises HatcastError."""
    slots = slots_of_day(policy)
    if wanted is None:
        return slots
    unknown = [slot for slot in wanted if slot not in slots]
    if unknown or not wanted:
        raise HatcastError(f"--slots: {', '.join(unknown) or 'none'}: the policy's are {', '.join(slots)}")
    return [slot for slot in slots if slot in wanted]


def read_vectors(
    files: Sequence[Path],
    feed: Format,
    settings: Settings,
    slots: Sequence[str],
    progress: Callable[[int], None],
    date: str | None = None,
) -> Vectors:
    """Return the vectors of all users of recordings, or of a dump of telemetry (`feed` DUMP).

    The user key is that of the settings, or a new one.

    date   the local date whose users are returned; None: all
    """
    pseudonyms = Pseudonyms(settings.user_key or secrets.token_bytes(KEY_BYTES))
    retained, users = RetainChunks(), FoldUsers(pseudonyms)
    job = FoldJob(settings.policy, users, now_ms(), retained, progress)
    with open_recording(files, feed) as recording:
        if feed is DUMP:
            dump = Dump(recording, ", ".join(map(str, files)))
            calendar = Calendar(settings.policy)
            fold_dump(dump, job, fold_maker(settings.policy, calendar, users, settings, dump.head.partitions))
        else:
            fold_recording(recording, job)
    found, steps = hat_vectors(_contributions(retained, date), slots, settings.policy)
    return Vectors(slots, found, steps, pseudonyms.key)


def _contributions(retained: RetainChunks, date: str | None) -> Iterator[Contributions]:
    for hat in retained.hats():
        if date is not None and hat.slot.partition("/")[0] != date:
            continue
        for chunk in retained.chunks(hat).readings:
            yield hat.slot.partition("/")[2], *columns(chunk)


EPSILON_MAX: Final = 10.0  # a larger epsilon hides hardly anything; policies have the same limit


class ClusterBlend(StrEnum):
    """Groups of users in the release: both, blended by PWH, or one of them."""

    PWH = "pwh"
    TCM_ONLY = "tcm_only"
    LM_ONLY = "lm_only"


@dataclass(frozen=True, slots=True)
class ClusteringOptions:
    """Options of a release."""

    setting: ClusteringSetting
    local: float  # share of users that count as local devices, from 0 to 1
    blend: ClusterBlend


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedCentres:
    """A private release, publishable. central, local: selected users of each group, public under `replace`."""

    policy: Policy
    slots: Sequence[str]
    options: ClusteringOptions
    central: int
    local: int
    clusters: Clusters

    def record(self) -> dict[str, Any]:
        """Return the release as a JSON object."""
        grid, setting, clusters = Grid(self.policy.grid, self.policy.lower), self.options.setting, self.clusters
        step = float(grid.milli) / 1000
        return {
            "status": "released",
            "epsilon": setting.epsilon,
            "relation": Relation.REPLACE.value,
            "privacy_unit": self.policy.unit,
            "ledger": None,
            "policy_id": self.policy.policy_id,
            "blend": self.options.blend.value,
            "iterations": setting.iterations,
            "seed": setting.seed,
            "users": {"central": self.central, "local": self.local},
            "unit": self.policy.released_value.unit,
            "slots": list(self.slots),
            "clusters": [
                {
                    "centre": [float(grid.text(each)) for each in clusters.centres[k].tolist()],
                    "users": round(float(clusters.users[k]), 1),
                    "noise_deviation": [round(each * step, grid.digits) for each in clusters.noise[k].tolist()],
                    "central_weight": [round(each, 4) for each in clusters.weights[k].tolist()],
                    "last_moved": int(clusters.moved[k]),
                }
                for k in range(setting.clusters)
            ],
        }


def check_relation(policy: Policy) -> None:
    """Raise SettingError for a policy with horizons instead of days, and for one with private numbers of users."""
    if policy.method.has_horizons:
        raise SettingError(
            "policy.continual", "has horizons, and K-means is proved for a user's day", "name another configuration"
        )
    if policy.relation is not Relation.REPLACE:
        raise SettingError(
            "policy.privacy.relation",
            "is add_remove, and K-means is proved for replace only",
            'name a configuration with relation = "replace"',
        )


def release(vectors: Vectors, policy: Policy, options: ClusteringOptions, noise: Noise) -> ReleasedCentres:
    """Release the centres; each user's charge is `options.setting.epsilon`. Raises HatcastError for too few users."""
    check_relation(policy)
    local = select_local(vectors.pseudonyms, options.local, vectors.key)
    selected = {ClusterBlend.PWH: np.ones_like(local), ClusterBlend.TCM_ONLY: ~local, ClusterBlend.LM_ONLY: local}[
        options.blend
    ]
    number = int(selected.sum())
    if number < max(policy.min_users, 1):  # the number of users is public under `replace`
        raise HatcastError(
            "fewer users than policy.privacy.min_users: nothing is released; name more files, or use both groups"
        )
    central, local_vectors = vectors.steps[selected & ~local], vectors.steps[selected & local]
    clusters = cluster(central, Devices(local_vectors, options.setting, noise), options.setting, noise)
    return ReleasedCentres(policy, vectors.slots, options, len(central), len(local_vectors), clusters)


def select_local(pseudonyms: NDArray[np.uint64], share: float, key: bytes) -> NDArray[np.bool_]:
    """Return [n] whether a user counts as a local device: its keyed hash is below the share.

    It depends on no speed and on no other user.
    """
    below = int(Fraction(share) * 2**64)

    def place(pseudonym: int) -> int:
        message = pseudonym.to_bytes(PSEUDONYM_BYTES, "big")
        return int.from_bytes(hashlib.blake2b(message, digest_size=8, key=key, person=b"hatcast-local").digest(), "big")

    return np.array([place(each) < below for each in pseudonyms.tolist()], np.bool_)
