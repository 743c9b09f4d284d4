"""A recording into the telemetry topic, as it arrived then."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.sources.pacing import Pace
from hatcast.agents.sources.progress import Bar, Summary
from hatcast.agents.sources.recorded_producer import RecordedProducer, Say
from hatcast.agents.sources.target import open_target, refuse_if_late
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.recording import Recording
from hatcast.stream.replay.heartbeats import Replay

_AGAIN = "what was sent is still there; to start afresh give topics.telemetry and policy.name new names"


@dataclass(frozen=True, slots=True)
class Listener:
    """Whoever watches a feed.

    say    told now and then how far it is
    note   told, in a sentence, what a person should know
    """

    say: Say
    note: Callable[[str], object]


def run_replay(
    settings: Settings,
    recording: Recording,
    speedup: float,
    stop: threading.Event,
    *,
    with_end: bool,
    left_out: frozenset[str] = frozenset(),
) -> Summary:
    """`hatcast feed replay`: check the target, then send all but the vehicles that are `left_out` (canonical ids).

    Raises HatcastError: what `open_target`, `refuse_if_late` and `send_recording` raise.
    """
    calendar = Calendar(settings.policy)
    now = now_ms()
    first = recording.first_ms
    if first is not None and not 0 <= first <= now + settings.policy.max_ahead_ms:
        first = None  # it is not sent
    target = open_target(settings, first)
    if first is not None:
        refuse_if_late(settings, target, calendar, first, _AGAIN)
    plan = Replay(settings.policy, calendar, target.addresses, now, left_out)
    with (
        Bar(calendar, len(recording)) as bar,
        RecordedProducer(confluent_options(settings), settings.topics.telemetry, stop) as sender,
    ):
        listener = Listener(bar.show, bar.note)
        pace = pace_of(settings.policy, speedup, stop)
        finished = send_recording(recording, plan, sender, pace, with_end=with_end, listener=listener)
    return Summary(
        topic=sender.topic,
        partitions=target.addresses.partitions,
        records=sender.records,
        ticks=sender.ticks,
        undecodable=plan.undecodable,
        arrived_in_future=plan.arrived_in_future,
        arrived_before_1970=plan.arrived_before_1970,
        seconds=round(bar.seconds, 3),
        finished=finished,
    )


def send_recording(
    recording: Recording, plan: Replay, sender: RecordedProducer, pace: Pace, *, with_end: bool, listener: Listener
) -> bool:
    """Send all of a recording, and the last ticks unless `with_end` is false; False if it was stopped before.

    What was sent is with the broker when this returns. Raises HatcastError if the broker did not take it, RecordingError.
    """
    finished = sender.send_all(plan.messages(recording), pace, listener.say)
    end_ms = plan.end_ms()
    if finished and with_end and end_ms is not None:
        # The silence after the last record was not recorded: only what is ahead of the wall has to be waited for.
        pace.hurry()
        missing_s = (end_ms - pace.ahead_ms - now_ms()) / 1000
        if missing_s > 0:
            listener.note(f"waiting {missing_s:.0f} s until the last slot may be closed (--no-end leaves that out)")
        finished = sender.send_all(plan.end(), pace, listener.say)
    sender.finish()
    return finished


def pace_of(policy: Policy, speedup: float, stop: threading.Event) -> Pace:
    """The pace of a replay: no record is sent before rule 1 would let it pass."""
    return Pace(speedup, policy.max_ahead_ms, stop)
