"""Empty folds of a policy's topics, for each partition.    [docs/specification/fold.md, rule 10]"""

from collections.abc import Callable

from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.extras import require
from hatcast.stream.errors import SettingError
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.reading_fold import Fold, reading_fold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.hybrid.report_fold import GenuineReport, ReportFold
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import format_with
from hatcast.stream.readings.vehicles import PARTITIONERS, by_murmur2


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


def report_check(settings: Settings) -> GenuineReport | None:
    """Return the check of signatures, for all partitions; None if signatures are not checked.

    Raises HatcastError if the package for it is not installed, or a key of the file cannot be a public key.
    """
    if settings.report_keys is None:
        return None
    require("nacl", "worker.report_keys_file")
    from hatcast.stream.hybrid.signatures import ReportVerifier

    try:
        return ReportVerifier(settings.report_keys).is_genuine
    except ValueError:
        raise SettingError(
            "worker.report_keys_file",
            "a key in it cannot be a public key",  # not named: it may be a secret one that was written by mistake
            "copy the lines that `hatcast keys` printed as they are",
        ) from None


def report_fold_maker(
    policy: Policy, calendar: Calendar, users: FoldUsers, partitions: int, is_genuine: GenuineReport | None
) -> Callable[[int], ReportFold]:
    """Return a function that makes the empty fold of a reports partition; devices use murmur2."""

    def make(partition: int) -> ReportFold:
        return ReportFold(
            policy, calendar, users, lambda device: by_murmur2(device, partitions) == partition, is_genuine
        )

    return make
