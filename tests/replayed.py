"""What a replayed topic folds to, partition by partition, without worker and store."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import h3.api.basic_int as h3

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.reading_fold import Fold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import EstimatorKeys, Policy, Relation, read_policy
from hatcast.stream.readings.formats import jsonl
from hatcast.stream.readings.vehicles import KEY_BYTES, PARTITIONERS, Pseudonyms
from hatcast.stream.replay.heartbeats import TelemetryMessage

NOW = 1_800_000_000_000  # in 2027


def policy_of(**changes: Any) -> Policy:
    """`files`: what the files hold that keys name; the rest are keys of [policy]."""
    files: Mapping[str, str] = changes.pop("files", {})
    table = {
        "name": "test",
        "upper_bound": 65.0,
        "timezone": "UTC",
        "hours": [0, 24],
        "privacy": {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 105.0},
        "estimator": {"name": "baseline"},
    }
    keys = {"baseline": EstimatorKeys(relations=frozenset(Relation), several_values=True)}
    return read_policy(table | changes, keys, lambda name: files.get(name, ""))


def golden_policy(golden: Mapping[str, Any]) -> Policy:
    given = golden["policy"]
    return policy_of(
        upper_bound=given["U"],
        reject_above=given["reject_above"],
        drop_zero=given["drop_zero"],
        timezone=given["tz"],
        h3_resolution=given["res"],
        hours=[given["h0"], given["h1"]],
        lateness=f"{given['late']}s",
        max_ahead=f"{given['ahead']}s",
        min_interval=f"{given['minint']}s",
        slot_length=f"{given['slot']}m",
        privacy={"epsilon": 1.0, "max_hats_per_day": given["K"], "daily_limit": 105.0},
    )


def _is_home(partition: int, partitions: int, vehicle: bytes) -> bool:
    return PARTITIONERS["murmur2"](vehicle, partitions) == partition


def fold(
    policy: Policy, partitions: int, messages: Sequence[TelemetryMessage]
) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Outcomes and HATs [users, count, sum, max] of the messages, folded by partition with rule 10."""
    outcomes: Counter[str] = Counter()
    hats: dict[str, list[int]] = {}
    for partition in range(partitions):
        mine = [message for message in messages if message.partition == partition]
        one = Fold(
            policy,
            Calendar(policy),
            FoldUsers(Pseudonyms(bytes(KEY_BYTES))),
            jsonl.decode,
            partial(_is_home, partition, partitions),
        )
        one.apply(NOW, [m.timestamp_ms for m in mine], [m.value for m in mine])
        outcomes.update(one.outcomes)
        for key, slot in one.slots.items():
            for cell, hat in slot.hats.items():
                total = hats.setdefault(f"{h3.int_to_str(cell)}/{key}", [0, 0, 0, 0])
                for user in hat.users.values():
                    total[0] += 1
                    total[1] += user.count
                    total[2] += user.total
                    total[3] = max(total[3], user.maximum)
    del outcomes["tick"]
    return {name: records for name, records in outcomes.items() if records}, hats
