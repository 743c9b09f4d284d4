"""Roles of those that use Kafka and Redis: one user each, with the privileges that `hatcast acls` prints."""

from enum import StrEnum


class Role(StrEnum):
    """A part that one user plays.

    reader   programs that read what is published, `hatcast tail` and `hatcast export`
    cluster  `hatcast cluster live`
    """

    WORKER = "worker"
    FEED = "feed"
    DISPLAY = "display"
    READER = "reader"
    OPERATOR = "operator"
    DEVICE = "device"
    CLUSTER = "cluster"
