"""Empty folds of a policy's topics, for each partition.    [docs/specification/fold.md, rule 10]"""

from collections.abc import Callable

from hatcast.agents.config.settings import Settings
from hatcast.stream.fold.contributions import Fold
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.fold.values import reading_fold
from hatcast.stream.hybrid.report_fold import ReportFold
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import format_with
from hatcast.stream.readings.partitioner import PARTITIONERS, by_murmur2


def fold_maker(
    policy: Policy, calendar: Calendar, users: FoldUsers, settings: Settings, partitions: int
) -> Callable[[int], Fold]:
    """Return a function that makes the empty fold of a telemetry partition."""
    partition_of = PARTITIONERS[settings.topics.telemetry_partitioner]
    decode = format_with(settings.topics.telemetry_format, policy.value_units).decode

    def make(partition: int) -> Fold:
        return reading_fold(
            policy, calendar, users, decode, lambda vehicle: partition_of(vehicle, partitions) == partition
        )

    return make


def report_fold_maker(
    policy: Policy, calendar: Calendar, users: FoldUsers, partitions: int
) -> Callable[[int], ReportFold]:
    """Return a function that makes the empty fold of a reports partition; devices use murmur2."""

    def make(partition: int) -> ReportFold:
        return ReportFold(policy, calendar, users, lambda device: by_murmur2(device, partitions) == partition)

    return make
