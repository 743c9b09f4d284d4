"""Values of the declared metrics. Each process has one instance: `METERS`.

A counter is incremented per batch, checkpoint or release, never per record. A gauge whose value a loop has in memory
anyway is read by a callback when Prometheus scrapes: `Meters.register`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from itertools import product
from typing import Any, Final

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from hatcast.agents.clock import monotonic_s
from hatcast.agents.monitoring import declarations as declared

Samples = Mapping[tuple[str, ...], float]
"""Label values, in the order of the declaration -> value of the gauge; () for a gauge without labels."""


class Meters(Collector):
    """Metrics of one process. Thread-safe."""

    def __init__(self) -> None:
        self._registry = prometheus.CollectorRegistry()
        self._metrics: dict[str, Any] = {}
        self._callbacks: dict[declared.Gauge, Callable[[], Samples]] = {}
        self._policy = ""
        prometheus.ProcessCollector(registry=self._registry)
        prometheus.PlatformCollector(registry=self._registry)
        prometheus.GCCollector(registry=self._registry)
        self._registry.register(self)

    def expose(self, process: declared.Process) -> None:
        """Export all counters and histograms of a process from now on, also those at 0: `rate()` needs the 0."""
        for metric in declared.METRICS:
            if process in metric.processes and metric.kind is not prometheus.Gauge:
                self._create(metric)
        self.set(declared.BUILD_INFO, 1, version=version("hatcast"), process=process.value)

    def set_policy(self, name: str) -> None:
        """Add the label `policy` with this value to all metrics of the process; "": none. A worker runs one policy."""
        self._policy = name

    def count(self, counter: declared.Counter, by: float = 1, **labels: str) -> None:
        """Increment a counter. Raises ValueError if a label's value is not declared."""
        self._child(counter, labels).inc(by)

    def set(self, gauge: declared.Gauge, value: float, **labels: str) -> None:
        """Set a gauge. Raises ValueError as `count` does."""
        self._child(gauge, labels).set(value)

    def set_to_current_time(self, gauge: declared.Gauge) -> None:
        """Set a gauge named `_timestamp_seconds` to the current time."""
        self._child(gauge, {}).set_to_current_time()

    def observe(self, histogram: declared.Histogram, seconds: float) -> None:
        """Observe a duration."""
        self._child(histogram, {}).observe(seconds)

    @contextmanager
    def timed(self, histogram: declared.Histogram) -> Iterator[None]:
        """Observe the duration of the block, unless it raises: prometheus_client's `time` observes failures too."""
        start_s = monotonic_s()
        yield
        self.observe(histogram, monotonic_s() - start_s)

    def register(self, gauge: declared.Gauge, callback: Callable[[], Samples]) -> None:
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

    def _child(self, metric: declared.Metric[declared.Kind_co], labels: Mapping[str, str]) -> declared.Kind_co:
        _check(metric, labels)
        created = self._create(metric)
        return created.labels(**labels) if labels else created

    def _create(self, metric: declared.Metric[declared.Kind_co]) -> declared.Kind_co:
        """Return the metric; create it, with all its label values, at the first call."""
        created: declared.Kind_co | None = self._metrics.get(metric.name)
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
                own = {declared.POLICY.name: self._policy}
                family.samples = [sample._replace(labels=dict(sample.labels) | own) for sample in family.samples]
            yield family


def _check(metric: declared.Metric[Any], labels: Mapping[str, str]) -> None:
    """Reject labels or values that are not declared: a value could be a vehicle's."""
    known = {label.name: label.values for label in metric.labels}
    if labels.keys() != known.keys():
        raise ValueError(f"{metric.name} has the labels {list(known)}: pass each of them")
    for name, values in known.items():
        if values and labels[name] not in values:
            raise ValueError(f"{metric.name}: this value of the label {name} is not declared: declare it")


# A counter's creation time adds nothing to `process_start_time_seconds`, and doubles the size of the page.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in 0.26
METERS: Final = Meters()
