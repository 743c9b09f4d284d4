"""Every metric of hatcast: its name, meaning, labels, and the processes that count it.

To add one: a line here, then `python -m tools.metrics_page` for docs/metrics.md, then count it (meters.py).
Alerts and panels (`ops/`) may use these names only. For operators, inside the trust boundary; all the same nothing here
is of one vehicle or one cell, and none is a mean.    [design 3, I5; 7]
"""

from typing import Final

from hatcast.agents.monitoring.kinds import Counter, Gauge, Histogram, Label, Metric, Process
from hatcast.stream.readings.reading import Outcome

_WORKER: Final = (Process.WORKER,)
_BRIDGE: Final = (Process.BRIDGE,)
_DISPLAY: Final = (Process.DISPLAY,)
_FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOW: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
PARTITION: Final = Label("partition")
STATUS: Final = Label("status", ("released", "suppressed", "budget_exhausted", "incomplete"))
# Of `/readyz`. A policy that takes devices' reports folds two topics, each with parts of its own.
_PARTS_OF_A_TOPIC: Final = ("redis", "ledger", "group", "partitions", "checkpoint", "clock")
PARTS: Final = ("worker", *_PARTS_OF_A_TOPIC, *(f"reports {part}" for part in _PARTS_OF_A_TOPIC))

# Every process.
BUILD_INFO: Final = Gauge(
    "hatcast_build_info", "1; which version runs, as what.", tuple(Process), (Label("version"), Label("process"))
)

# Worker: the fold.
READINGS: Final = Counter(
    "hatcast_readings_total",
    "Records whose outcome this process has stored, ticks too; a record that is folded again counts again."
    " Exact totals: `hatcast status`.",
    _WORKER,
    (Label("outcome", tuple(outcome.value for outcome in Outcome)),),
)
REPORTS: Final = Counter(
    "hatcast_reports_total",
    "The same of devices' reports, where the policy takes any.",
    _WORKER,
    (Label("outcome", tuple(outcome.value for outcome in Outcome)),),
)
WATERMARK: Final = Gauge(
    "hatcast_clock_timestamp_seconds",
    "Arrival time up to which a partition of ours is folded.",
    _WORKER,
    (PARTITION,),
)
BEHIND: Final = Gauge(
    "hatcast_behind_records", "Records of a partition of ours that wait in Kafka to be folded.", _WORKER, (PARTITION,)
)
AHEAD: Final = Gauge(
    "hatcast_ahead_seconds",
    "How far the record that a partition of ours waits for is dated ahead of this machine's clock;"
    " 0: it waits for none.",
    _WORKER,
    (PARTITION,),
)
BATCHES_WAITING: Final = Gauge(
    "hatcast_frames_waiting", "Frames fetched that wait to be folded; with 16 fetching pauses.", _WORKER
)
UNSTORED: Final = Gauge("hatcast_unstored_records", "Records folded and not stored yet: what memory holds.", _WORKER)
PARTITIONS: Final = Gauge(
    "hatcast_partitions",
    "Telemetry partitions: ours in Kafka's group, those of them that are loaded and read, and all that the topic has.",
    _WORKER,
    (Label("state", ("assigned", "loaded", "topic")),),
)
REBALANCES: Final = Counter("hatcast_rebalances_total", "Times that partitions were assigned to us.", _WORKER)
CHECKPOINT_SECONDS: Final = Histogram(
    "hatcast_checkpoint_duration_seconds", "To store what a partition has folded.", _WORKER, buckets=_FAST
)
CHECKPOINTS: Final = Counter(
    "hatcast_checkpoints_total",
    "Checkpoints; `refused`: another state is stored, `failed`: Redis did not answer. Both fold again.",
    _WORKER,
    (Label("result", ("stored", "refused", "failed")),),
)
DEAD_LETTERS: Final = Counter(
    "hatcast_dead_letters_total",
    "Dead letters; `dropped`: over the limit of 100 a second, or not sendable.",
    _WORKER,
    (Label("result", ("sent", "dropped")),),
)
HEARTBEATS: Final = Counter("hatcast_ticks_total", "Ticks sent to silent partitions.", _WORKER)
FAILURES: Final = Counter(
    "hatcast_troubles_total",
    "Tries of a loop that failed, mostly since Redis or Kafka did not answer; each is tried again.",
    (*_WORKER, *_DISPLAY),
    (Label("loop", ("ingest", "release", "ticks", "succession", "watch", "map")),),
)
READY: Final = Gauge(
    "hatcast_ready",
    "1 where this part of `/readyz` is ready, else 0; `worker` while it starts or stops.",
    _WORKER,
    (Label("part", PARTS),),
)
POLICY_INFO: Final = Gauge(
    "hatcast_policy_info", "1; which policy this worker releases.", _WORKER, (Label("policy"), Label("policy_id"))
)

# Worker: releases.
RELEASES: Final = Counter(
    "hatcast_releases_total",
    "Releases that this process has published; one that is sent again counts again.",
    _WORKER,
    (Label("kind", ("hat", "query")), STATUS),
)
COMMIT_SECONDS: Final = Histogram(
    "hatcast_commit_duration_seconds", "To commit a lot of releases with their charges.", _WORKER, buckets=_FAST
)
PUBLISH_SECONDS: Final = Histogram(
    "hatcast_publish_duration_seconds", "To publish a lot of releases in one transaction.", _WORKER, buckets=_FAST
)
CLOSING_SECONDS: Final = Histogram(
    "hatcast_closing_delay_seconds",
    "From when this process saw that a slot is final to the publication of each of its HATs;"
    " under `add_remove` until the full minute too.",
    _WORKER,
    buckets=_SLOW,
)
OLDEST_FINAL: Final = Gauge(
    "hatcast_oldest_final_seconds",
    "How long the oldest slot that is final waits, as this process sees it, until all is published; 0: none waits.",
    _WORKER,
)
OPEN_SLOTS: Final = Gauge("hatcast_open_slots", "Slots with contributions. The same from every worker.", _WORKER)
UNPUBLISHED: Final = Gauge(
    "hatcast_unpublished_releases",
    "Releases of the policy committed and not acknowledged by Kafka. The same from every worker.",
    _WORKER,
)
RECOVERIES: Final = Counter(
    "hatcast_ledger_recoveries_total",
    "Times that this process recovered the ledger, alone or with others, by whether it finished that.",
    _WORKER,
    (Label("result", ("finished", "unfinished")),),
)
FENCED: Final = Counter(
    "hatcast_producers_fenced_total", "Producers of ours that another worker took over while they sent.", _WORKER
)
BUDGET_RATIO: Final = Gauge(
    "hatcast_budget_spent_ratio",
    "What the day that is being folded can have cost one user so far, by its limit; the same from every worker.",
    _WORKER,
)
TOTAL_RATIO: Final = Gauge(
    "hatcast_budget_total_spent_ratio",
    "The same of all days together, where the policy has a `total_limit`.",
    _WORKER,
)

# Bridges: `hatcast feed mqtt`, `gtfs-rt`, `amqp`.
BRIDGE_READINGS: Final = Counter("hatcast_bridge_readings_total", "Readings that Kafka has acknowledged.", _BRIDGE)
BRIDGE_UNDECODABLE: Final = Counter(
    "hatcast_bridge_undecodable_total", "Records of the source that could not be read.", _BRIDGE
)
BRIDGE_REJECTED: Final = Counter(
    "hatcast_bridge_rejected_total",
    "Readings not sent, since they had come later than now (rule 1): the clock was set back meanwhile.",
    _BRIDGE,
)
BRIDGE_REPEATED: Final = Counter(
    "hatcast_bridge_repeated_total",
    "Readings of a poll that the vehicle has not renewed since the poll before.",
    _BRIDGE,
)
BRIDGE_DROPPED: Final = Counter(
    "hatcast_bridge_dropped_total",
    "Messages dropped because the buffer was full, of a source that does not send them again.",
    _BRIDGE,
)
BRIDGE_RECONNECTS: Final = Counter(
    "hatcast_bridge_reconnects_total", "Times that the source was lost or did not answer, and was tried again.", _BRIDGE
)
BRIDGE_UP: Final = Gauge(
    "hatcast_bridge_source_up", "1 while the source is connected, or answered last, else 0.", _BRIDGE
)
BRIDGE_LAST_READING: Final = Gauge(
    "hatcast_bridge_last_reading_timestamp_seconds",
    "When the last reading came from the source; before the first, when the bridge began.",
    _BRIDGE,
)
BRIDGE_LAST_POLL: Final = Gauge(
    "hatcast_bridge_last_poll_timestamp_seconds",
    "When the source last answered: a poll, or a message of any kind.",
    _BRIDGE,
)
BRIDGE_BUFFER: Final = Gauge(
    "hatcast_bridge_buffer_fill_ratio", "How full the buffer between source and Kafka is; 1: full.", _BRIDGE
)

# The display.
DISPLAY_CLIENTS: Final = Gauge("hatcast_display_clients", "Clients that follow the changes now.", _DISPLAY)
DISPLAY_DROPPED: Final = Counter(
    "hatcast_display_dropped_clients_total", "Clients that were too slow, and were let go.", _DISPLAY
)
DISPLAY_EVENTS: Final = Counter("hatcast_display_events_total", "Events sent, to all clients together.", _DISPLAY)
DISPLAY_LAST_RELEASE: Final = Gauge(
    "hatcast_display_last_release_timestamp_seconds",
    "When the last release was read from Kafka; before the first, when the display began.",
    _DISPLAY,
)
DISPLAY_KAFKA_UP: Final = Gauge(
    "hatcast_display_kafka_up", "1 while Kafka answers what follows the releases, else 0.", _DISPLAY
)

METRICS: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
