"""Estimates and running means from a dump of `hats.means`, or a ledger file: the bytes of the live topics."""

from collections.abc import Iterable, Iterator

import msgspec

from hatcast.agents.config.settings import Settings
from hatcast.agents.recordings.dump_file import Dump
from hatcast.stream.errors import RecordingError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.running.running import running_means_of
from hatcast.stream.tracker.observations import read_release
from hatcast.stream.tracker.smoother import estimates_of


def estimates(values: Iterable[bytes], policy: Policy) -> Iterator[bytes]:
    """Yield the estimate records of a policy, in the order in which a worker publishes them.

    values   of records, in any order; those that are not releases of the policy are left out
    """
    found = (record for value in values if (record := read_release(value, policy)) is not None)
    return (msgspec.json.encode(estimate) for estimate in estimates_of(policy, found))


def running_means(values: Iterable[bytes], policy: Policy) -> Iterator[bytes]:
    """Yield the running means of a policy, in the order in which a worker publishes them.

    values   of records, in any order; those that are not releases of the policy are left out
    """
    found = (record for value in values if (record := read_release(value, policy)) is not None)
    return (msgspec.json.encode(running) for running in running_means_of(policy, found))


def dumped_values(dump: Dump, settings: Settings, name: str) -> Iterator[bytes]:
    """Yield the values of a dump of `hats.means`. name: of its files. Raises RecordingError for another topic."""
    if dump.head.topic != settings.topics.means:
        raise RecordingError(
            name, f"is a dump of {dump.head.topic}, not of {settings.topics.means}", "give `hatcast dump means`"
        )
    return (line.value for line in dump if line.value is not None)
