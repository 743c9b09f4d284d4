"""Empty folds of a policy's topics, for workers and `hatcast batch`, and checks of records ahead of the clock."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.causes import require
from hatcast.stream.errors import SettingError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.reading_fold import Fold, reading_fold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.hybrid.report_fold import GenuineReport, ReportFold
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import format_with
from hatcast.stream.readings.vehicles import PARTITIONERS, by_murmur2


@dataclass(frozen=True, slots=True)
class EarlyRecord:
    """The first record of a partition that this machine's clock does not allow yet."""

    offset: int
    timestamp_ms: int  # its Kafka timestamp (ms UTC)
    max_ahead_ms: int  # how far ahead of the clock it may be

    def is_allowed(self) -> bool:
        """Return True if this machine's clock allows it by now."""
        return self.timestamp_ms <= now_ms() + self.max_ahead_ms

    def seconds(self) -> float:
        """Return how far it is ahead of this machine's clock; 0 if it is not."""
        return max(0, self.timestamp_ms - now_ms()) / 1000

    def problem(self, topic: str, partition: int) -> str:
        """Return the message: what waits, why, and the fix. Of the record it has only offset and timestamp."""
        return (
            f"{topic} partition {partition} waits at offset {self.offset}: {self._why()}."
            " Correct this machine's clock (NTP), and the worker continues by itself."
            " If the record's timestamp is wrong: set message.timestamp.after.max.ms on the topic, delete this"
            f" partition's records before offset {self.offset + 1} with kafka-delete-records.sh, and start the workers"
            " again with --accept-gap"
        )

    def dump_problem(self, topic: str, partition: int) -> str:
        """Return the message: a dump is folded only up to this record, why, and the fix."""
        return (
            f"{topic} partition {partition} is folded up to offset {self.offset} only: {self._why()}."
            " A worker waits here for its clock too: correct this machine's clock (NTP), or run this again later"
        )

    def _why(self) -> str:
        return (
            f"the record there is dated {_utc(self.timestamp_ms)}, more than policy.max_ahead"
            f" ({self.max_ahead_ms / 1000:g} s) ahead of this machine's clock, {_utc(now_ms())}"
        )


def _utc(moment_ms: int) -> str:
    """Return ISO 8601 to the millisecond; for a timestamp beyond the year 9999 its number."""
    try:
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{moment_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def fold_maker(
    policy: Policy, calendar: Calendar, users: FoldUsers, settings: Settings, partitions: int
) -> Callable[[int], Fold]:
    """Return a function that makes the empty fold of a telemetry partition."""
    partition_of = PARTITIONERS[settings.topics.telemetry_partitioner]
    decode = format_with(settings.topics.telemetry_format, policy.value_units).decode

    return lambda partition: reading_fold(
        policy, calendar, users, decode, lambda vehicle: partition_of(vehicle, partitions) == partition
    )


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
    return lambda partition: ReportFold(
        policy, calendar, users, lambda device: by_murmur2(device, partitions) == partition, is_genuine
    )
