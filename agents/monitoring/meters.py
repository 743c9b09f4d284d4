"""Values of the declared metrics, and the log of failures that repeat. Each process has one instance: `METERS`.

A counter is incremented per batch, checkpoint or release, never per record. A gauge whose value a loop has in memory
anyway is read by a callback when Prometheus scrapes: `Meters.register`.

A repeated failure of a loop is logged at once and then once a minute, and once when it clears. The line names the
operation, the service and the cause, never the error's own text: see agents/errors/causes.py.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from itertools import product
from typing import Any, Final

import prometheus_client as prometheus
import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from hatcast.agents.clock import monotonic_s
from hatcast.agents.errors.causes import FULL, cause_of, is_full
from hatcast.agents.monitoring.declarations import (
    BUILD_INFO,
    FAILURES,
    METRICS,
    POLICY,
    Counter,
    Gauge,
    Histogram,
    Kind_co,
    Metric,
    Process,
)

Samples = Mapping[tuple[str, ...], float]
"""Label values, in the order of the declaration -> value of the gauge; () for a gauge without labels."""


class Meters(Collector):
    """Metrics of one process. Thread-safe."""

    def __init__(self) -> None:
        self._registry = prometheus.CollectorRegistry()
        self._metrics: dict[str, Any] = {}
        self._callbacks: dict[Gauge, Callable[[], Samples]] = {}
        self._policy = ""
        prometheus.ProcessCollector(registry=self._registry)
        prometheus.PlatformCollector(registry=self._registry)
        prometheus.GCCollector(registry=self._registry)
        self._registry.register(self)

    def expose(self, process: Process) -> None:
        """Export all counters and histograms of a process from now on, also those at 0: `rate()` needs the 0."""
        for metric in METRICS:
            if process in metric.processes and metric.kind is not prometheus.Gauge:
                self._create(metric)
        self.set(BUILD_INFO, 1, version=version("hatcast"), process=process.value)

    def set_policy(self, name: str) -> None:
        """Add the label `policy` with this value to all metrics of the process; "": none. A worker runs one policy."""
        self._policy = name

    def count(self, counter: Counter, by: float = 1, **labels: str) -> None:
        """Increment a counter. Raises ValueError if a label's value is not declared."""
        self._child(counter, labels).inc(by)

    def set(self, gauge: Gauge, value: float, **labels: str) -> None:
        """Set a gauge. Raises ValueError as `count` does."""
        self._child(gauge, labels).set(value)

    def set_to_current_time(self, gauge: Gauge) -> None:
        """Set a gauge named `_timestamp_seconds` to the current time."""
        self._child(gauge, {}).set_to_current_time()

    def observe(self, histogram: Histogram, seconds: float) -> None:
        """Observe a duration."""
        self._child(histogram, {}).observe(seconds)

    @contextmanager
    def timed(self, histogram: Histogram) -> Iterator[None]:
        """Observe the duration of the block, unless it raises: prometheus_client's `time` observes failures too."""
        start_s = monotonic_s()
        yield
        self.observe(histogram, monotonic_s() - start_s)

    def register(self, gauge: Gauge, callback: Callable[[], Samples]) -> None:
        """Read a gauge's values from a callback at each scrape."""
        self._callbacks[gauge] = callback

    def unregister_all(self) -> None:
        """Unregister all gauge callbacks, because their owners have ended."""
        self._callbacks.clear()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges whose values come from callbacks. The registry calls it at each scrape."""
        for gauge, callback in list(self._callbacks.items()):
            names = [label.name for label in gauge.labels]
            family = GaugeMetricFamily(gauge.name, gauge.text, labels=names)
            for values, sample in callback().items():
                _check(gauge, dict(zip(names, values, strict=True)))
                family.add_metric(values, sample)
            yield family

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the body of `/metrics` and its content type, in the format that the header Accept asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(_PolicyLabel(self._registry, self._policy) if self._policy else self._registry), content_type

    def _child(self, metric: Metric[Kind_co], labels: Mapping[str, str]) -> Kind_co:
        _check(metric, labels)
        created = self._create(metric)
        return created.labels(**labels) if labels else created

    def _create(self, metric: Metric[Kind_co]) -> Kind_co:
        """Return the metric; create it, with all its label values, at the first call."""
        created: Kind_co | None = self._metrics.get(metric.name)
        if created is None:
            names = [label.name for label in metric.labels]
            options: dict[str, Any] = {"buckets": metric.buckets} if metric.buckets else {}
            created = metric.kind(metric.name, metric.text, names, registry=self._registry, **options)
            self._metrics[metric.name] = created
            if names and metric.kind is not prometheus.Gauge:
                for values in product(*(label.values for label in metric.labels)):
                    created.labels(*values)
        return created


class _PolicyLabel(Collector):
    """The metrics of a registry, with a label of one value on each of hatcast's own."""

    def __init__(self, registry: prometheus.CollectorRegistry, policy: str) -> None:
        self._registry = registry
        self._policy = policy

    def collect(self) -> Iterator[prometheus.Metric]:
        """Yield the families, which the registry makes anew at each scrape."""
        for family in self._registry.collect():
            if family.name.startswith("hatcast_"):
                own = {POLICY.name: self._policy}
                family.samples = [sample._replace(labels=dict(sample.labels) | own) for sample in family.samples]
            yield family


def _check(metric: Metric[Any], labels: Mapping[str, str]) -> None:
    """Reject labels or values that are not declared: a value could be a vehicle's."""
    declared = {label.name: label.values for label in metric.labels}
    if labels.keys() != declared.keys():
        raise ValueError(f"{metric.name} has the labels {list(declared)}: pass each of them")
    for name, values in declared.items():
        if values and labels[name] not in values:
            raise ValueError(f"{metric.name}: this value of the label {name} is not declared: declare it")


# A counter's creation time adds nothing to `process_start_time_seconds`, and doubles the size of the page.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in 0.26
METERS: Final = Meters()


log = structlog.get_logger()

_BACK_OFF_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_REPEAT_S: Final = 60.0
_NOTE: Final = "hatcast operation: "

Operation = tuple[str, int | None]
"""Name of an operation, and the partition that it is for; None if it is not for one partition."""


class FailureLog:
    """Failure log of one loop.

    Each operation of the loop runs inside `attempt`, which names its failure and records its success. `clear` logs for
    each failed operation that its retry succeeded, or that a retry was not needed: the operation had succeeded although
    its answer was lost, or another worker has done it.
    """

    def __init__(self, loop: str) -> None:
        """Args: `loop`, its name in the log and in the metric's label."""
        self._loop = loop
        self._since_s = 0.0
        self._tries = 0
        self._logged_s: dict[str, float] = {}  # cause -> when it was logged
        self._operations: dict[Operation, bool] = {}  # those that failed -> whether they have succeeded since
        self._skip_clear = False

    @contextmanager
    def attempt(self, operation: str, partition: int | None = None) -> Iterator[None]:
        """Run the block as an operation, named by a verb and its object; at the block's end it has succeeded."""
        with self.name_operation(operation, partition):
            yield
        self.succeeded(operation, partition)

    @contextmanager
    def name_operation(self, operation: str, partition: int | None = None) -> Iterator[None]:
        """Attach the operation's name to an exception of the block; the innermost name counts."""
        try:
            yield
        except Exception as error:
            _name_operation(error, operation, partition)
            raise

    def succeeded(self, operation: str, partition: int | None = None) -> None:
        """Record that this worker has done an operation, which may have failed before."""
        if (operation, partition) in self._operations:
            self._operations[operation, partition] = True

    def failed_partitions(self, operation: str) -> set[int]:
        """Return the partitions for which an operation has failed and not succeeded since."""
        failed = (key for key, succeeded in self._operations.items() if not succeeded)
        return {partition for name, partition in failed if name == operation and partition is not None}

    def skip_next_clear(self) -> None:
        """Ignore the next `clear`: this round of the loop could not retry the failed operations."""
        self._skip_clear = True

    def failed(self, error: Exception) -> None:
        """Log a failed attempt, unless its cause was logged within the last minute and since the last `clear`."""
        now_s = monotonic_s()
        if not self._tries:
            self._since_s = now_s
        self._tries += 1
        METERS.count(FAILURES, loop=self._loop)
        operation, partition = _operation_of(error) or (f"run the loop {self._loop}", None)
        _remove_operation(error)
        self._operations[operation, partition] = False
        cause = cause_of(error)
        fields: dict[str, str | int | float] = {"loop": self._loop, "operation": operation, "service": cause.service}
        if cause.text in self._logged_s:
            if now_s - self._logged_s[cause.text] < _REPEAT_S:
                return
            fields |= {"since_s": round(now_s - self._since_s, 1), "tries": self._tries}
        self._logged_s[cause.text] = now_s
        if is_full(error):
            log.error(FULL, **fields)
        else:
            log.warning("operation failed, retrying", **fields, cause=cause.text, error=type(error).__name__)

    def clear(self) -> None:
        """Log the result of each failed operation and forget them: in this round nothing failed."""
        skip, self._skip_clear = self._skip_clear, False
        if skip:
            return
        if self._tries:
            after_s = round(monotonic_s() - self._since_s, 1)
            for event, succeeded in (
                ("retry succeeded", True),
                ("retry not needed", False),
            ):
                for operation, partitions in _partitions_by_operation(self._operations, succeeded=succeeded).items():
                    where = {"partitions": partitions} if partitions else {}
                    log.info(event, loop=self._loop, operation=operation, after_s=after_s, tries=self._tries, **where)
        self._tries = 0
        self._logged_s.clear()
        self._operations.clear()

    @property
    def wait_s(self) -> float:
        """Seconds to wait before the next attempt; 0 if the last one succeeded."""
        return back_off_s(self._tries - 1) if self._tries else 0.0


def _name_operation(error: BaseException, operation: str, partition: int | None = None) -> None:
    """Attach the name of the failed operation to its error, unless it has one."""
    if _operation_of(error) is None:
        error.add_note(f"{_NOTE}{operation}{'' if partition is None else f' #{partition}'}")


def _operation_of(error: BaseException) -> Operation | None:
    for note in getattr(error, "__notes__", ()):
        if note.startswith(_NOTE):
            operation, _, partition = note.removeprefix(_NOTE).partition(" #")
            return operation, int(partition) if partition else None
    return None


def _remove_operation(error: BaseException) -> None:
    """Remove the operation's name: libraries raise one error object several times, then for other operations."""
    notes = getattr(error, "__notes__", [])
    notes[:] = [note for note in notes if not note.startswith(_NOTE)]


def _partitions_by_operation(operations: dict[Operation, bool], *, succeeded: bool) -> dict[str, list[int]]:
    """Return operation -> sorted partitions, for the operations that have succeeded since, or for the others."""
    partitions: dict[str, list[int]] = {}
    for (operation, partition), has_succeeded in operations.items():
        if has_succeeded is succeeded:
            partitions.setdefault(operation, [])
            if partition is not None:
                partitions[operation] = sorted({*partitions[operation], partition})
    return partitions


def back_off_s(attempt: int) -> float:
    """Return the seconds to wait after failed attempt number `attempt`, from 0: the backoff grows up to 5 s."""
    return _BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)]
