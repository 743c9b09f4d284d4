"""Metric types for declarations: counter, gauge, histogram, and their labels."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar


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
class Metric:
    """Declaration of one metric.

    name        `hatcast_...`, in base units: seconds, bytes, ratios from 0 to 1
    text        help text, one line
    processes   the processes that export it
    labels      in the order in which their values are passed
    """

    kind: ClassVar[str]
    name: str
    text: str
    processes: tuple[Process, ...]
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True)
class Counter(Metric):
    """Count that only grows, from 0 at the start of the process. Its name ends in `_total`."""

    kind: ClassVar[str] = "counter"


@dataclass(frozen=True)
class Gauge(Metric):
    """Current value. It is exported once it has been set."""

    kind: ClassVar[str] = "gauge"


@dataclass(frozen=True)
class Histogram(Metric):
    """Durations in seconds, counted in buckets by upper bound."""

    kind: ClassVar[str] = "histogram"
    buckets: tuple[float, ...] = field(kw_only=True)
