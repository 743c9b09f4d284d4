"""Golden messages of a clustering with devices: its rounds, its results and the devices' answers."""

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from hatcast.agents.cluster.live.rounds import round_of
from hatcast.agents.cluster.live.run import result_record
from hatcast.agents.cluster.live.state import Chosen, ClusteringPlan
from hatcast.agents.cluster.release import ClusterBlend, ClusteringOptions, ReleasedCentres
from hatcast.stream.kmeans.lloyd import Clusters, seeds
from hatcast.stream.kmeans.messages import ClusterAnswer, encode, speeds_of
from hatcast.stream.policy.policy import Policy

CLUSTERING: Final = "fedcba9876543210fedcba9876543210"


def clusterings(policy: Policy, date: str, now_ms: int) -> Iterator[tuple[str, str, bytes]]:
    """A round, and results with and without trusted users: their keys and values."""
    chosen = Chosen(
        policy_id=policy.policy_id,
        date=date,
        slots=("09:00", "18:00"),
        clusters=2,
        iterations=3,
        epsilon=4.0,
        seed=1,
        blend="pwh",
    )
    setting, plan = chosen.setting(policy), ClusteringPlan(clustering=CLUSTERING, chosen=chosen, answers_from=(0,))
    round_ = round_of(plan, policy, 2, tuple(speeds_of(centre, policy) for centre in seeds(setting).tolist()), now_ms)
    yield "round", f"{CLUSTERING}/2", encode(round_)
    noise, weights = np.array([[812.5, 1140.25], [0.0, 0.0]]), np.array([[0.8125, 0.75], [0.0, 0.0]])
    clusters = Clusters(
        np.array([[21_314, 34_870], [40_125, 18_006]]), np.array([212.4, 0.0]), noise, weights, np.array([3, 0])
    )
    for blend, users in (
        (ClusterBlend.PWH, (180, 40)),
        (ClusterBlend.LM_ONLY, (0, 40)),
        (ClusterBlend.TCM_ONLY, (180, 0)),
    ):
        options = ClusteringOptions(setting, 0.0, blend)
        value = result_record(plan, ReleasedCentres(policy, chosen.slots, options, *users, clusters))
        yield f"released_{blend.value}", f"{CLUSTERING}/result", value


def cluster_answers(policy: Policy, device: str) -> Iterator[tuple[str, ClusterAnswer]]:
    """The first answer of a device, and another one."""
    first = ClusterAnswer(
        clustering=CLUSTERING,
        round=1,
        id=device,
        cluster=1,
        vector=speeds_of([-3_125, 41_207], policy),
    )
    yield "first", first
    yield "later", msgspec.structs.replace(first, round=2, cluster=0, vector=None)
