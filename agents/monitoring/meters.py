"""Counting what is declared. One page a process, as there is one log: `METERS`.

A counter is advanced per frame, checkpoint or release, never per record. What a loop has at hand anyway is not set but
read, when somebody looks: `Meters.register`.
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
"""Values of all labels, in their order -> figure; () where a gauge has none."""

_MADE: Final = {
    "counter": prometheus.Counter,
    "gauge": prometheus.Gauge,
}


class Meters:
    """The figures of one process. Any thread may count."""

    def __init__(self) -> None:
        self._registry = prometheus.CollectorRegistry()
        self._made: dict[str, prometheus.Counter | prometheus.Gauge | prometheus.Histogram] = {}
        self._readers: dict[Gauge, Callable[[], Samples]] = {}
        prometheus.ProcessCollector(registry=self._registry)
        prometheus.PlatformCollector(registry=self._registry)
        prometheus.GCCollector(registry=self._registry)
        self._registry.register(_Readers(self._readers))

    def expose(self, process: Process) -> None:
        """Show all counters and histograms of a process from now on, those that are still 0 too: a rate needs that."""
        for metric in METRICS:
            if process in metric.processes and not isinstance(metric, Gauge):
                self._make(metric)
        self.set(BUILD_INFO, 1, version=version("hatcast"), process=process.value)

    def count(self, counter: Counter, by: float = 1, **labels: str) -> None:
        """Advance a counter. Raises ValueError where a label has a value that is not declared."""
        made = self._at(counter, labels)
        if isinstance(made, prometheus.Counter):
            made.inc(by)

    def set(self, gauge: Gauge, value: float, **labels: str) -> None:
        """What is so now. Raises ValueError as `count`."""
        made = self._at(gauge, labels)
        if isinstance(made, prometheus.Gauge):
            made.set(value)

    def set_to_current_time(self, gauge: Gauge) -> None:
        """The time of now, to gauges named `_timestamp_seconds`."""
        self.set(gauge, now_ms() / 1000)

    def observe(self, histogram: Histogram, seconds: float, **labels: str) -> None:
        """How long something took. Raises ValueError as `count`."""
        made = self._at(histogram, labels)
        if isinstance(made, prometheus.Histogram):
            made.observe(seconds)

    @contextmanager
    def timed(self, histogram: Histogram) -> Iterator[None]:
        """Observe how long the block takes; not where it raises."""
        began_s = monotonic_s()
        yield
        self.observe(histogram, monotonic_s() - began_s)

    def register(self, gauge: Gauge, reader: Callable[[], Samples]) -> None:
        """Ask for a gauge's figures whenever the page is asked for: they are of now, and cost nothing meanwhile."""
        self._readers[gauge] = reader

    def unregister_all(self) -> None:
        """Ask nobody any more: whoever was asked has ended."""
        self._readers.clear()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """`/metrics` and its content type, as the header Accept wishes."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def _at(
        self, metric: Metric, labels: Mapping[str, str]
    ) -> prometheus.Counter | prometheus.Gauge | prometheus.Histogram:
        made = self._make(metric)
        if not metric.labels:
            return made
        return made.labels(*_values(metric, labels))

    def _make(self, metric: Metric) -> prometheus.Counter | prometheus.Gauge | prometheus.Histogram:
        made = self._made.get(metric.name)
        if made is None:
            names = [label.name for label in metric.labels]
            if isinstance(metric, Histogram):
                made = prometheus.Histogram(
                    metric.name, metric.text, names, buckets=metric.buckets, registry=self._registry
                )
            else:
                made = _MADE[metric.kind](metric.name, metric.text, names, registry=self._registry)
            self._made[metric.name] = made
            if names and not isinstance(metric, Gauge):
                for values in product(*(label.values for label in metric.labels)):
                    made.labels(*values)
        return made


class _Readers(Collector):
    """The gauges that are read when somebody looks."""

    def __init__(self, readers: Mapping[Gauge, Callable[[], Samples]]) -> None:
        self._readers = readers

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for gauge, reader in list(self._readers.items()):
            names = [label.name for label in gauge.labels]
            family = GaugeMetricFamily(gauge.name, gauge.text, labels=names)
            for values, figure in reader().items():
                family.add_metric(_values(gauge, dict(zip(names, values, strict=True))), figure)
            yield family

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield from ()


def _values(metric: Metric, labels: Mapping[str, str]) -> list[str]:
    """In the order declared. A value from nowhere could be a vehicle's, so it is refused."""
    if labels.keys() != {label.name for label in metric.labels}:
        raise ValueError(f"{metric.name} has the labels {[label.name for label in metric.labels]}")
    for label in metric.labels:
        if label.values and labels[label.name] not in label.values:
            raise ValueError(f"{metric.name}: {label.name} has no such value; declare it")
    return [labels[label.name] for label in metric.labels]


# When a counter began says nothing that `process_start_time_seconds` does not, and doubles the page.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]  # 0.26 leaves it untyped
METERS: Final = Meters()
