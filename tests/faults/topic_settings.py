"""Settings of topics that change while workers run: workers name them, none starts on them, and nothing is lost."""

from contextlib import suppress
from functools import partial
from typing import Final

from tests.faults.actors import Worker, WrongSetting
from tests.faults.stage import Stage
from tests.integration.health import missing
from tests.integration.test_drain import grow

NAMED_S: Final = 90
_LONGER_S: Final = 8.0


def topic_setting(stage: Stage, patience_s: int = NAMED_S) -> None:
    """A setting of a topic breaks a promise until a worker has named it, and a while longer.

    No setting by which the broker deletes something within a storm.
    """
    topics, ahead = stage.pipeline.settings.topics, stage.pipeline.settings.policy.max_ahead_ms
    changed = stage.random.choice(
        [
            WrongSetting(topics.means, "cleanup.policy", "delete", "compact"),
            WrongSetting(topics.queries, "cleanup.policy", "compact,delete", "compact"),
            WrongSetting(topics.budget, "max.message.bytes", "16000", "1048588"),
            WrongSetting(topics.registry, "cleanup.policy", "compact,delete", "compact"),
            WrongSetting(topics.telemetry, "message.timestamp.after.max.ms", str(2**62), str(ahead)),
        ]
    )
    stage.alter(changed)
    stage.tally["setting of a topic changed"] += 1
    for _ in range(patience_s):
        if any(is_named(worker, changed) for worker in stage.workers if not worker.paused):
            break
        if not stage.alive():
            stage.start_worker()
        stage.wait(1.0)
    else:
        stage.broken.append(f"named: no worker says that {changed}")
    stage.later(stage.random.uniform(0.0, _LONGER_S), partial(stage.set_back, changed))


def grow_outputs(stage: Stage) -> None:
    """Another city on the same output topics grows: they have more partitions than our telemetry from now on."""
    topics = stage.pipeline.settings.topics
    stage.kafka.resume()
    if "output topics grown" not in stage.tally:
        grow(stage.pipeline, topics.means, topics.queries, topics.estimates, topics.running)
        stage.tally["output topics grown"] += 1


def is_named(worker: Worker, changed: WrongSetting) -> bool:
    """Whether its `/readyz` names it, or it has refused to start for it."""
    if not worker.running:
        return str(changed) in worker.process.logged() and "worker started" not in worker.process.logged()
    return str(changed) in _not_ready(worker).get("topics", "")


def named_still(stage: Stage) -> list[str]:
    """What part `topics` of a `/readyz` names, though everything is set back."""
    return [f"named: {said}" for worker in stage.alive() if (said := _not_ready(worker).get("topics"))]


def _not_ready(worker: Worker) -> dict[str, str]:
    with suppress(OSError):  # it has ended, or stopped itself meanwhile
        return missing(worker.process)
    return {}
