"""Replay: send a recording to the telemetry topic with its recorded arrival times."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.sources.pacing import FeedSummary, Pace, ProgressBar
from hatcast.agents.sources.recorded_producer import ProgressCallback, RecordedProducer
from hatcast.agents.sources.target import open_target, reject_if_late
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.recording import Recording
from hatcast.stream.replay.heartbeats import Replay

_START_AFRESH = "the topic still has what was sent; to start afresh give topics.telemetry and policy.name new names"


@dataclass(frozen=True, slots=True)
class ProgressListener:
    """Callbacks of a feed.

    on_progress   called now and then by `RecordedProducer.send_all`
    note          called with a sentence for the user
    """

    on_progress: ProgressCallback
    note: Callable[[str], object]


def run_replay(
    settings: Settings,
    recording: Recording,
    speedup: float,
    stop: threading.Event,
    *,
    with_end: bool,
    left_out: frozenset[str] = frozenset(),
) -> FeedSummary:
    """Run `hatcast feed replay`: check the target, then send all vehicles except `left_out` (canonical ids).

    Raises HatcastError as `open_target`, `reject_if_late` and `send_recording` do.
    """
    calendar = Calendar(settings.policy)
    now = now_ms()
    first = recording.first_ms
    if first is not None and not 0 <= first <= now + settings.policy.max_ahead_ms:
        first = None  # it is not sent
    target = open_target(settings, first)
    if first is not None:
        reject_if_late(settings, target, calendar, first, _START_AFRESH)
    plan = Replay(settings.policy, calendar, target.router, now, left_out)
    with (
        ProgressBar(calendar, len(recording)) as bar,
        RecordedProducer(confluent_options(settings), settings.topics.telemetry, stop) as sender,
    ):
        listener = ProgressListener(bar.show, bar.note)
        pace = replay_pace(settings.policy, speedup, stop)
        finished = send_recording(recording, plan, sender, pace, with_end=with_end, listener=listener)
    return FeedSummary(
        topic=sender.topic,
        partitions=target.router.partitions,
        records=sender.records,
        ticks=sender.heartbeats,
        undecodable=plan.undecodable,
        arrived_in_future=plan.arrived_in_future,
        arrived_before_1970=plan.arrived_before_1970,
        seconds=round(bar.seconds, 3),
        finished=finished,
    )


def send_recording(
    recording: Recording,
    plan: Replay,
    sender: RecordedProducer,
    pace: Pace,
    *,
    with_end: bool,
    listener: ProgressListener,
) -> bool:
    """Send a recording, and its last heartbeat records if `with_end`; return False if it was stopped before its end.

    Returns once the broker has everything that was sent. Raises HatcastError if the broker rejects a record,
    RecordingError.
    """
    finished = sender.send_all(plan.messages(recording), pace, listener.on_progress)
    end_ms = plan.end_ms()
    if finished and with_end and end_ms is not None:
        # The time after the last record was not recorded: wait only for what is ahead of the wall clock.
        pace.disable_pacing()
        missing_s = (end_ms - pace.ahead_ms - now_ms()) / 1000
        if missing_s > 0:
            listener.note(f"waiting {missing_s:.0f} s until the last slot may be closed (--no-end omits that)")
        finished = sender.send_all(plan.end(), pace, listener.on_progress)
    sender.finish()
    return finished


def replay_pace(policy: Policy, speedup: float, stop: threading.Event) -> Pace:
    """Return the pace of a replay: no record is sent so early that rule 1 rejects it."""
    return Pace(speedup, policy.max_ahead_ms, stop)
