"""Every metric of hatcast: its name, meaning, labels, and the processes that export it.

To add a metric: declare it here, run `python -m tools.metrics_page` for docs/metrics.md, then count it: `METERS`.
Alerts and dashboards (`ops/`) may use these names only. Metrics are for operators, inside the trust boundary; even so,
no metric describes a single vehicle or cell, and none is a mean.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, Generic, TypeVar

import prometheus_client as prometheus
from prometheus_client.metrics import MetricWrapperBase

from hatcast.stream.readings.reading import Outcome
from hatcast.stream.records.fields import Status

Kind_co = TypeVar("Kind_co", bound=MetricWrapperBase, covariant=True)


class Process(StrEnum):
    """Kind of process that exports a metric."""

    WORKER = "worker"
    BRIDGE = "bridge"
    DISPLAY = "display"


@dataclass(frozen=True, slots=True)
class Label:
    """Label of a metric, with all its values.

    A label is never a cell or a vehicle: those sets are large, and a value for one of them is a release without noise.
    """

    name: str
    # empty: not listed, because the label is a partition number or a public fact of a build or a policy
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric(Generic[Kind_co]):
    """Declaration of one metric."""

    # Counter, from 0 at the start of the process; Gauge, exported once it is set; Histogram of durations
    kind: type[Kind_co]
    processes: tuple[Process, ...]  # the processes that export it
    name: str  # `hatcast_...`, in base units: seconds, bytes, ratios from 0 to 1; a counter's name ends in `_total`
    text: str  # help text, one line
    labels: tuple[Label, ...] = ()  # in the order in which their values are passed
    buckets: tuple[float, ...] = ()  # of a histogram: upper bounds in seconds


Counter = Metric[prometheus.Counter]
Gauge = Metric[prometheus.Gauge]
Histogram = Metric[prometheus.Histogram]
counter: Final = partial(Metric, prometheus.Counter, (Process.WORKER,))
gauge: Final = partial(Metric, prometheus.Gauge, (Process.WORKER,))
histogram: Final = partial(Metric, prometheus.Histogram, (Process.WORKER,))
bridge_counter: Final = partial(Metric, prometheus.Counter, (Process.BRIDGE,))
bridge_gauge: Final = partial(Metric, prometheus.Gauge, (Process.BRIDGE,))
display_counter: Final = partial(Metric, prometheus.Counter, (Process.DISPLAY,))
display_gauge: Final = partial(Metric, prometheus.Gauge, (Process.DISPLAY,))

_FAST: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOW: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
_LATE: Final = (60.0, 120.0, 180.0, 300.0, 420.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0)
PARTITION: Final = Label("partition")
POLICY: Final = Label("policy")
"""Label of every metric of a worker: the name of its one policy, public and the same for the process' life."""
STATUS: Final = Label("status", tuple(Status))
# The parts of `/readyz`. A policy that accepts device reports folds two topics, each with its own parts.
_TOPIC_PARTS: Final = ("redis", "ledger", "group", "partitions", "checkpoint", "clock", "transactions")
PARTS: Final = ("worker", "topics", *_TOPIC_PARTS, *(f"reports {part}" for part in _TOPIC_PARTS))

# Every process.
BUILD_INFO: Final = Metric(
    prometheus.Gauge,
    tuple(Process),
    "hatcast_build_info",
    "Always 1; the labels are the running version and the kind of process.",
    (Label("version"), Label("process")),
)

# Worker: the fold.
READINGS: Final = counter(
    "hatcast_readings_total",
    "Records, heartbeat records included, whose outcome this process has stored; a record that is folded again counts"
    " again. Exact totals: `hatcast status`.",
    (Label("outcome", tuple(outcome.value for outcome in Outcome)),),
)
REPORTS: Final = counter(
    "hatcast_reports_total",
    "Device reports by outcome, if the policy accepts any; counted like `hatcast_readings_total`.",
    (Label("outcome", tuple(outcome.value for outcome in Outcome)),),
)
ID_DAYS: Final = counter(
    "hatcast_id_days_total",
    "Vehicle ids of days that are over, by whether they were in one or two timeslots of their day (`few`) or in more."
    " Of a partition and day with fewer than 20 of them, or 6 timeslots, none is counted. Nearly all `few`: ids change"
    " from trip to trip, and one bus has many budgets.",
    (Label("slots", ("few", "many")),),
)
WATERMARK: Final = gauge(
    "hatcast_clock_timestamp_seconds",
    "Watermark of an owned partition: the arrival time up to which it is folded.",
    (PARTITION,),
)
BEHIND: Final = gauge(
    "hatcast_behind_records",
    "Consumer lag: records of an owned partition that are in Kafka and not folded yet.",
    (PARTITION,),
)
AHEAD: Final = gauge(
    "hatcast_ahead_seconds",
    "How far the next record of an owned partition is dated ahead of this machine's clock; 0: the partition does not"
    " wait for such a record.",
    (PARTITION,),
)
BATCHES_WAITING: Final = gauge(
    "hatcast_frames_waiting", "Fetched batches that wait to be folded; at 16 fetching pauses."
)
UNSTORED: Final = gauge(
    "hatcast_unstored_records", "Records folded since the last checkpoint; they are in memory only."
)
PARTITIONS: Final = gauge(
    "hatcast_partitions",
    "Telemetry partitions: assigned to this worker by the consumer group, loaded and read by it, and in the topic.",
    (Label("state", ("assigned", "loaded", "topic")),),
)
REBALANCES: Final = counter("hatcast_rebalances_total", "Rebalances that assigned partitions to this worker.")
CHECKPOINT_SECONDS: Final = histogram(
    "hatcast_checkpoint_duration_seconds",
    "Time to write the checkpoint of one partition to Redis.",
    buckets=_FAST,
)
CHECKPOINTS: Final = counter(
    "hatcast_checkpoints_total",
    "Checkpoints. `refused`: Redis holds another state, `failed`: Redis did not answer; in both cases the records are"
    " folded again.",
    (Label("result", ("stored", "refused", "failed")),),
)
DEAD_LETTERS: Final = counter(
    "hatcast_dead_letters_total",
    "Dead letters. `dropped`: over the limit of 100 a second, or the send failed.",
    (Label("result", ("sent", "dropped")),),
)
HEARTBEATS: Final = counter("hatcast_ticks_total", "Heartbeat records sent to idle partitions.")
FAILURES: Final = Metric(
    prometheus.Counter,
    (Process.WORKER, Process.DISPLAY),
    "hatcast_troubles_total",
    "Failed attempts of a loop, usually because Redis or Kafka did not answer; each is retried.",
    (Label("loop", ("ingest", "release", "estimates", "ticks", "succession", "drain", "watch", "map")),),
)
READY: Final = gauge(
    "hatcast_ready",
    "1 if this part of `/readyz` is ready, else 0; `worker` is 0 while the worker starts or stops.",
    (Label("part", PARTS),),
)
POLICY_INFO: Final = gauge(
    "hatcast_policy_info",
    "Always 1; the labels are the policy that this worker releases.",
    (POLICY, Label("policy_id")),
)

# Worker: releases.
TRACKER_MISMATCHES: Final = counter(
    "hatcast_tracker_mismatches_total",
    "Slots and settlements at which stored queries of a tracker did not follow from the counts, so that it made no more"
    " queries on that date.",
)
RELEASES: Final = counter(
    "hatcast_releases_total",
    "Releases that this process has published; a release that is sent again counts again.",
    (Label("kind", ("hat", "query")), STATUS),
)
COMMIT_SECONDS: Final = histogram(
    "hatcast_commit_duration_seconds", "Time to commit a batch of releases with their charges.", buckets=_FAST
)
PUBLISH_SECONDS: Final = histogram(
    "hatcast_publish_duration_seconds",
    "Time to publish a batch of releases in one Kafka transaction.",
    buckets=_FAST,
)
CLOSING_SECONDS: Final = histogram(
    "hatcast_closing_delay_seconds",
    "Time from this process noticing that a slot is final to the publication of each of its HATs; under `add_remove`"
    " it includes the wait for the full minute.",
    buckets=_SLOW,
)
FRESHNESS: Final = histogram(
    "hatcast_freshness_seconds",
    "Time from a slot's end to the publication of each of its HATs, by this machine's clock: the policy's lateness, the"
    " wait for the slowest partition, and the closing delay. Not of recordings (`telemetry_retention` is `none`).",
    buckets=_LATE,
)
OLDEST_FINAL: Final = gauge(
    "hatcast_oldest_final_seconds",
    "How long the oldest final slot with unpublished releases has waited, as this process sees it; 0: none waits.",
)
OPEN_SLOTS: Final = gauge("hatcast_open_slots", "Slots with contributions. Every worker reports the same value.")
UNPUBLISHED: Final = gauge(
    "hatcast_unpublished_releases",
    "Releases of the policy that are committed and not yet acknowledged by Kafka. Every worker reports the same value.",
)
RECOVERIES: Final = counter(
    "hatcast_ledger_recoveries_total",
    "Ledger recoveries that this process ran, alone or together with other workers, by result.",
    (Label("result", ("finished", "unfinished")),),
)
RELEASES_LACKING: Final = counter(
    "hatcast_releases_lacking_total",
    "Releases of open dates that `hats.budget` counts and a recovery found nowhere: commits that were never sent, or"
    " records that the output topics lost.",
)
FENCED: Final = counter(
    "hatcast_producers_fenced_total", "Producers of this worker that another worker fenced while they were sending."
)
BUDGET_RATIO: Final = gauge(
    "hatcast_budget_spent_ratio",
    "Upper bound of one user's charges on the day that is being folded, without what the policy's own tracker or"
    " horizon has reserved, divided by the daily limit; every worker of a policy reports the same value.",
)
TOTAL_RATIO: Final = gauge(
    "hatcast_budget_total_spent_ratio",
    "Upper bound of one user's charges over all days, divided by `total_limit`, if the policy has one.",
)

# Bridges: `hatcast feed mqtt`, `gtfs-rt`, `siri`, `amqp`.
BRIDGE_READINGS: Final = bridge_counter("hatcast_bridge_readings_total", "Readings that Kafka has acknowledged.")
BRIDGE_UNDECODABLE: Final = bridge_counter(
    "hatcast_bridge_undecodable_total", "Records of the source that could not be decoded."
)
BRIDGE_REJECTED: Final = bridge_counter(
    "hatcast_bridge_rejected_total",
    "Readings not sent because their arrival is in the future (rule 1 of the fold): the machine's clock was set back.",
)
BRIDGE_REPEATED: Final = bridge_counter(
    "hatcast_bridge_repeated_total", "Readings of a poll that are unchanged since the previous poll."
)
BRIDGE_WITHOUT_SPEED: Final = bridge_counter(
    "hatcast_bridge_without_speed_total",
    "Positions not sent because no speed follows from them, with `--derive-speed`.",
)
BRIDGE_DROPPED: Final = bridge_counter(
    "hatcast_bridge_dropped_total", "Messages dropped because the buffer was full; the source does not send them again."
)
BRIDGE_RECONNECTS: Final = bridge_counter(
    "hatcast_bridge_reconnects_total", "Reconnects after the source was lost or did not answer."
)
BRIDGE_UP: Final = bridge_gauge(
    "hatcast_bridge_source_up", "1 while the source is connected or answered the last request, else 0."
)
BRIDGE_LAST_READING: Final = bridge_gauge(
    "hatcast_bridge_last_reading_timestamp_seconds",
    "When the last reading arrived from the source; before the first reading, when the bridge started.",
)
BRIDGE_LAST_POLL: Final = bridge_gauge(
    "hatcast_bridge_last_poll_timestamp_seconds", "When the source last answered: a poll, or a message of any kind."
)
BRIDGE_BUFFER: Final = bridge_gauge(
    "hatcast_bridge_buffer_fill_ratio", "Fill level of the buffer between source and Kafka; 1: full."
)

# The display.
DISPLAY_CLIENTS: Final = display_gauge("hatcast_display_clients", "Clients that are connected to the event stream.")
DISPLAY_DROPPED: Final = display_counter(
    "hatcast_display_dropped_clients_total", "Clients disconnected because they were too slow."
)
DISPLAY_EVENTS: Final = display_counter("hatcast_display_events_total", "Events sent, summed over all clients.")
DISPLAY_LAST_RELEASE: Final = display_gauge(
    "hatcast_display_last_release_timestamp_seconds",
    "When the last release was read from Kafka; before the first, when the display started.",
)
DISPLAY_KAFKA_UP: Final = display_gauge(
    "hatcast_display_kafka_up", "1 while the reader of the releases gets answers from Kafka, else 0."
)

METRICS: Final[tuple[Metric[Any], ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
