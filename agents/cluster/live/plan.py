"""Public parameters of a live clustering."""

import secrets
from typing import Final

import msgspec

from hatcast.stream.hybrid import ID_BYTES
from hatcast.stream.kmeans.hat_vectors import top_of
from hatcast.stream.kmeans.setting import Setting
from hatcast.stream.policy.policy import Policy

_SHOWN: Final = 12  # digits of the id in the name of the reservation


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that the user chooses. `blend`: see `hatcast.agents.cluster.release.Blend`."""

    policy_id: str
    date: str
    slots: tuple[str, ...]
    clusters: int
    iterations: int
    epsilon: float
    seed: int
    blend: str

    def setting(self, policy: Policy) -> Setting:
        """Return the setting of the K-means. Raises SettingError."""
        return Setting(len(self.slots), top_of(policy), self.clusters, self.iterations, self.epsilon, self.seed)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One clustering.

    clustering    random id
    answers_from  first offset of its answers in each partition of `cluster-answers`; none without devices
    """

    clustering: str
    chosen: Chosen
    answers_from: tuple[int, ...]

    @property
    def query(self) -> str:
        """Name of its reservation in the ledger."""
        return f"clustering-{self.clustering[:_SHOWN]}"


def new_id() -> str:
    """Return a random id."""
    return secrets.token_hex(ID_BYTES)
