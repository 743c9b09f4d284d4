"""What a metric is declared as."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar


class Process(StrEnum):
    """Which process counts it."""

    WORKER = "worker"
    BRIDGE = "bridge"
    DISPLAY = "display"


@dataclass(frozen=True, slots=True)
class Label:
    """A label and all the values that it may have.

    A label is never a cell or a vehicle: those sets are large, and a figure of one of them is a release without noise.

    values   empty: any number of a partition, or what is public of a build or a policy
    """

    name: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Metric:
    """One name on `/metrics`.

    name        `hatcast_...`, in base units: seconds, bytes, ratios from 0 to 1
    text        what it says, as one line
    processes   that export it
    labels      in the order in which values are given
    """

    kind: ClassVar[str]
    name: str
    text: str
    processes: tuple[Process, ...]
    labels: tuple[Label, ...] = ()


@dataclass(frozen=True)
class Counter(Metric):
    """Only grows, from 0 at the start of the process. Its name ends in `_total`."""

    kind: ClassVar[str] = "counter"


@dataclass(frozen=True)
class Gauge(Metric):
    """What is so now. It is not on the page before it was set."""

    kind: ClassVar[str] = "gauge"


@dataclass(frozen=True)
class Histogram(Metric):
    """How long something takes: seconds, counted by upper bounds."""

    kind: ClassVar[str] = "histogram"
    buckets: tuple[float, ...] = field(kw_only=True)
