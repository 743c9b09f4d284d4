"""Running means from the releases of a dump of `hats.means`, or of a ledger file: the bytes of the live topic."""

from collections.abc import Iterable, Iterator

import msgspec

from hatcast.stream.policy.policy import Policy
from hatcast.stream.running.running import running_means_of
from hatcast.stream.tracker.slots import read_release


def running_means(values: Iterable[bytes], policy: Policy) -> Iterator[bytes]:
    """Yield the running means of a policy, in the order in which a worker publishes them.

    values   of records, in any order; those that are not releases of the policy are left out
    """
    found = (record for value in values if (record := read_release(value, policy)) is not None)
    return (msgspec.json.encode(running) for running in running_means_of(policy, found))
