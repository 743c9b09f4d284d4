"""A live clustering, from its parameters to its published result."""

import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from hatcast.agents.clock import now_ms
from hatcast.agents.cluster.live.charge import RecordedUsers, charge_in_file, charge_in_redis
from hatcast.agents.cluster.live.exchange import RESULT, answer_ends, check_published, open_answers, publish
from hatcast.agents.cluster.live.rounds import Exchange, LiveRounds
from hatcast.agents.cluster.live.state import Chosen, ClusteringPlan, ClusteringState, open_state
from hatcast.agents.cluster.release import (
    ClusterBlend,
    ClusteringOptions,
    ReleasedCentres,
    check_relation,
    read_vectors,
)
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.dump import DUMP, open_dump
from hatcast.agents.kafka.grants import Role, check_permissions
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.stream.errors import HatcastError
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.fold.calendar import Calendar, closes_at
from hatcast.stream.hybrid import ID_BYTES
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Format
from hatcast.stream.records import ClustersRecord


def recorded_vectors(files: Sequence[Path], feed: Format, settings: Settings, chosen: Chosen) -> Integers:
    """Return int64 [n, d], in steps: the vectors of all users of recordings on the date. Raises HatcastError."""
    return read_vectors(files, feed, settings, chosen.slots, lambda _: None, chosen.date).steps


def telemetry_vectors(settings: Settings, chosen: Chosen) -> Integers:
    """Return the same of the telemetry topic, folded as `hatcast batch` folds its dump.

    The dump is in a folder that only its owner may read, and deleted. Raises HatcastError if Kafka does not have it.
    """
    with tempfile.TemporaryDirectory(prefix="hatcast-") as folder:
        path = Path(folder) / "telemetry.jsonl"
        with open_dump(settings, settings.topics.telemetry) as dump, path.open("wb") as file:
            for lines, _ in dump.chunks():
                file.write(lines)
        return recorded_vectors([path], DUMP, settings, chosen)


_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class LiveClusteringOptions:
    """Options of the user."""

    state: Path  # path of the state file
    round_s: float  # how long devices have for an answer
    # the trusted users; None: those of the telemetry topic, whom the ledger of the workers charges
    users: RecordedUsers | None


def run_live(
    settings: Settings, chosen: Chosen, options: LiveClusteringOptions, note: Callable[[str], object]
) -> dict[str, Any]:
    """Run a clustering, or go on with one; return its published record.

    note   gets a sentence about what is waited for
    Raises HatcastError. Whatever happens, the same options with the same state file go on, and spend nothing twice.
    """
    policy = settings.policy
    check_live(policy, chosen)
    chosen.setting(policy)  # raises SettingError before anything is charged
    blend = ClusterBlend(chosen.blend)
    ensure_topics(settings)

    def plan() -> ClusteringPlan:
        return ClusteringPlan(clustering=secrets.token_hex(ID_BYTES), chosen=chosen, answers_from=answer_ends(settings))

    with open_state(options.state, chosen, plan) as state:
        if state.result is None:
            central = None if blend is ClusterBlend.LM_ONLY else _trusted(settings, state, options, note)
            _wait_for_day(policy, chosen, note)
            state.store_result(_result(settings, state, central, options, note))
        record = state.result
        assert record is not None  # noqa: S101 - stored above
        # Also after a restart: the same bytes under the same key.
        check_published(settings, state, options.state)
        publish(settings, result_id(state.plan), record)
        found: dict[str, Any] = msgspec.json.decode(record)
        return found


def check_live(policy: Policy, chosen: Chosen) -> None:
    """Raise HatcastError if the policy takes no reports of devices, or the date lacks these slots."""
    check_relation(policy)
    if not policy.takes_reports:
        raise HatcastError(
            f"policy {policy.name!r} takes no reports of devices: its estimator is {policy.estimator}; choose a hybrid"
            " one that reads them, such as pwh (docs/hybrid.md); `hatcast cluster offline` needs none"
        )
    calendar = Calendar(policy)
    for name in chosen.slots:
        slot = calendar.slot_named(chosen.date, name)
        if slot is None or slot.outside:
            raise HatcastError(f"--date {chosen.date} has no slot {name} under this policy: name another date or slots")


def _trusted(
    settings: Settings, state: ClusteringState, options: LiveClusteringOptions, note: Callable[[str], object]
) -> Callable[[], Integers]:
    """Charge the trusted users, before anything of theirs is read; return a function that reads their vectors."""
    plan, users = state.plan, options.users
    if users is not None:
        charge_in_file(users, settings, plan)  # once; also when it goes on, its files are compared
    elif not state.is_charged:
        check_permissions(settings, Role.CLUSTER)  # a result that cannot be published would have been paid for
        charge_in_redis(settings, plan)
    if not state.is_charged:
        state.mark_charged()
        note(f"charged epsilon {plan.chosen.epsilon:g} to {plan.chosen.date} as {plan.query}")
    if users is None:
        return partial(telemetry_vectors, settings, plan.chosen)
    return partial(recorded_vectors, users.files, users.feed, settings, plan.chosen)


def _wait_for_day(policy: Policy, chosen: Chosen, note: Callable[[str], object]) -> None:
    """Wait until the slots of the clustering accept no more readings."""
    calendar = Calendar(policy)
    slots = [calendar.slot_named(chosen.date, name) for name in chosen.slots]
    final_ms = max(closes_at(slot, policy) for slot in slots if slot is not None)
    if now_ms() < final_ms:
        until = datetime.fromtimestamp(final_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        note(f"waiting until {until}, when the last slot is over")
    while now_ms() < final_ms:
        time.sleep(_PAUSE_S)


def _result(
    settings: Settings,
    state: ClusteringState,
    read_central: Callable[[], Integers] | None,
    options: LiveClusteringOptions,
    note: Callable[[str], object],
) -> bytes:
    """Run the rounds; return the result record."""
    # Imported here: noise takes seconds to load, and most errors are found before.
    from hatcast.stream.mechanisms.system import SystemNoise

    plan, policy = state.plan, settings.policy
    setting, blend = plan.chosen.setting(policy), ClusterBlend(plan.chosen.blend)
    check = partial(check_published, settings, state, options.state)
    with ExitStack() as stack:
        devices = None
        if blend is not ClusterBlend.TCM_ONLY:
            reader = stack.enter_context(open_answers(settings, plan, setting))
            devices = Exchange(partial(publish, settings), reader, int(options.round_s * 1000))
        central = None if read_central is None else read_central()
        clusters = LiveRounds(settings, state, central, devices, SystemNoise(), check).run(note)
    first = state.numbers(1)  # of the first round, which has ended
    users = (0, 0) if first is None else (first.central, first.devices)
    chosen = ClusteringOptions(setting, 0.0, blend)
    return result_record(plan, ReleasedCentres(policy, plan.chosen.slots, chosen, *users, clusters))


def result_id(plan: ClusteringPlan) -> str:
    """Return the key of a clustering's result."""
    return f"{plan.clustering}/{RESULT}"


def result_record(plan: ClusteringPlan, released: ReleasedCentres) -> bytes:
    """Return the published result of a clustering."""
    own = {"clusters_id": result_id(plan), "clustering": plan.clustering, "date": plan.chosen.date}
    record = released.record() | own | {"policy": released.policy.name, "ledger": plan.query}
    if released.options.blend is ClusterBlend.LM_ONLY:
        del record["ledger"]
    return msgspec.json.encode(msgspec.convert(record, ClustersRecord))
