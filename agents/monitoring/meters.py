"""Values of the declared metrics. Each process has one instance: `METERS`.

A counter is incremented per batch, checkpoint or release, never per record. A gauge whose value a loop has in memory
anyway is read by a callback when Prometheus scrapes: `Meters.register`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from itertools import product
from typing import Final

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.monitoring.declarations import BUILD_INFO, METRICS
from hatcast.agents.monitoring.kinds import Counter, Gauge, Histogram, Metric, Process

Samples = Mapping[tuple[str, ...], float]
"""Label values, in the order of the declaration -> value of the gauge; () for a gauge without labels."""

_TYPES: Final = {
    "counter": prometheus.Counter,
    "gauge": prometheus.Gauge,
}


class Meters:
    """Metrics of one process. Thread-safe."""

    def __init__(self) -> None:
        self._registry = prometheus.CollectorRegistry()
        self._metrics: dict[str, prometheus.Counter | prometheus.Gauge | prometheus.Histogram] = {}
        self._callbacks: dict[Gauge, Callable[[], Samples]] = {}
        prometheus.ProcessCollector(registry=self._registry)
        prometheus.PlatformCollector(registry=self._registry)
        prometheus.GCCollector(registry=self._registry)
        self._registry.register(_CallbackGauges(self._callbacks))

    def expose(self, process: Process) -> None:
        """Export all counters and histograms of a process from now on, also those at 0: `rate()` needs the 0."""
        for metric in METRICS:
            if process in metric.processes and not isinstance(metric, Gauge):
                self._create(metric)
        self.set(BUILD_INFO, 1, version=version("hatcast"), process=process.value)

    def count(self, counter: Counter, by: float = 1, **labels: str) -> None:
        """Increment a counter. Raises ValueError if a label's value is not declared."""
        child = self._child(counter, labels)
        if isinstance(child, prometheus.Counter):
            child.inc(by)

    def set(self, gauge: Gauge, value: float, **labels: str) -> None:
        """Set a gauge. Raises ValueError as `count` does."""
        child = self._child(gauge, labels)
        if isinstance(child, prometheus.Gauge):
            child.set(value)

    def set_to_current_time(self, gauge: Gauge) -> None:
        """Set a gauge named `_timestamp_seconds` to the current time."""
        self.set(gauge, now_ms() / 1000)

    def observe(self, histogram: Histogram, seconds: float, **labels: str) -> None:
        """Observe a duration. Raises ValueError as `count` does."""
        child = self._child(histogram, labels)
        if isinstance(child, prometheus.Histogram):
            child.observe(seconds)

    @contextmanager
    def timed(self, histogram: Histogram) -> Iterator[None]:
        """Observe the duration of the block, unless it raises."""
        start_s = monotonic_s()
        yield
        self.observe(histogram, monotonic_s() - start_s)

    def register(self, gauge: Gauge, callback: Callable[[], Samples]) -> None:
        """Read a gauge's values from a callback at each scrape."""
        self._callbacks[gauge] = callback

    def unregister_all(self) -> None:
        """Unregister all gauge callbacks, because their owners have ended."""
        self._callbacks.clear()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the body of `/metrics` and its content type, in the format that the header Accept asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def _child(
        self, metric: Metric, labels: Mapping[str, str]
    ) -> prometheus.Counter | prometheus.Gauge | prometheus.Histogram:
        parent = self._create(metric)
        if not metric.labels:
            return parent
        return parent.labels(*_values(metric, labels))

    def _create(self, metric: Metric) -> prometheus.Counter | prometheus.Gauge | prometheus.Histogram:
        """Return the metric; create it, with all its label values, at the first call."""
        created = self._metrics.get(metric.name)
        if created is None:
            names = [label.name for label in metric.labels]
            if isinstance(metric, Histogram):
                created = prometheus.Histogram(
                    metric.name, metric.text, names, buckets=metric.buckets, registry=self._registry
                )
            else:
                created = _TYPES[metric.kind](metric.name, metric.text, names, registry=self._registry)
            self._metrics[metric.name] = created
            if names and not isinstance(metric, Gauge):
                for values in product(*(label.values for label in metric.labels)):
                    created.labels(*values)
        return created


class _CallbackGauges(Collector):
    """Collector of the gauges whose values come from callbacks."""

    def __init__(self, callbacks: Mapping[Gauge, Callable[[], Samples]]) -> None:
        self._callbacks = callbacks

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for gauge, callback in list(self._callbacks.items()):
            names = [label.name for label in gauge.labels]
            family = GaugeMetricFamily(gauge.name, gauge.text, labels=names)
            for values, sample in callback().items():
                family.add_metric(_values(gauge, dict(zip(names, values, strict=True))), sample)
            yield family

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield from ()


def _values(metric: Metric, labels: Mapping[str, str]) -> list[str]:
    """Return the label values in the order declared. An undeclared value is rejected: it could be a vehicle's."""
    if labels.keys() != {label.name for label in metric.labels}:
        raise ValueError(f"{metric.name} has the labels {[label.name for label in metric.labels]}: pass each of them")
    for label in metric.labels:
        if label.values and labels[label.name] not in label.values:
            raise ValueError(f"{metric.name}: this value of the label {label.name} is not declared: declare it")
    return [labels[label.name] for label in metric.labels]


# A counter's creation time adds nothing to `process_start_time_seconds`, and doubles the size of the page.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in 0.26
METERS: Final = Meters()
