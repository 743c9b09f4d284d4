"""Declaration of a metric of prometheus_client, with its label values and the processes that export it."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, Generic, TypeVar

import prometheus_client as prometheus
from prometheus_client.metrics import MetricWrapperBase

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

    values   empty: not listed, because the label is a partition number or a public fact of a build or a policy
    """

    name: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric(Generic[Kind_co]):
    """Declaration of one metric.

    kind        Counter, from 0 at the start of the process; Gauge, exported once it is set; Histogram of durations
    name        `hatcast_...`, in base units: seconds, bytes, ratios from 0 to 1; a counter's name ends in `_total`
    text        help text, one line
    processes   the processes that export it
    labels      in the order in which their values are passed
    buckets     of a histogram: upper bounds in seconds
    """

    kind: type[Kind_co]
    name: str
    text: str
    processes: tuple[Process, ...]
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()


Counter = Metric[prometheus.Counter]
Gauge = Metric[prometheus.Gauge]
Histogram = Metric[prometheus.Histogram]
counter: Final = partial(Metric, prometheus.Counter)
gauge: Final = partial(Metric, prometheus.Gauge)
histogram: Final = partial(Metric, prometheus.Histogram)
