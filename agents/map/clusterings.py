"""Results of clusterings with devices, by policy, as their original bytes, in bounded memory."""

from typing import Final

import msgspec

from hatcast.stream.records import ClustersRecord

MAX_RESULTS: Final = 20  # per policy: the newest
MAX_POLICIES: Final = 8


_DECODE: Final = msgspec.json.Decoder(ClustersRecord).decode


class Clusterings:
    """Stored results; of each policy those of the newest dates, of one date those that came last."""

    def __init__(self) -> None:
        self._results: dict[str, dict[str, tuple[str, bytes]]] = {}  # policy -> clustering -> (date, record)

    def add(self, record: bytes) -> str | None:
        """Store a record of `hats.clusters`; return its policy if it is a result that was not stored.

        Raises msgspec.DecodeError for anything else, and for a result that a page could not draw.
        """
        read = _DECODE(record)
        _check(read)
        if read.status != "released" or (read.date, record) == self._of(read.policy).get(read.clustering):
            return None
        results = self._results.pop(read.policy, {})
        self._results[read.policy] = results  # last: the policies without a new result are dropped first
        results[read.clustering] = read.date, record
        if len(results) > MAX_RESULTS:
            del results[self.ids(read.policy)[-1]]
        if len(self._results) > MAX_POLICIES:
            del self._results[next(iter(self._results))]
        return read.policy

    def ids(self, policy: str) -> list[str]:
        """Return the clusterings of a policy, the newest first."""
        results = self._of(policy)
        return sorted(results, key=lambda clustering: results[clustering][0])[::-1]

    def records(self, policy: str) -> list[bytes]:
        """Return the results of a policy, the newest first."""
        results = self._of(policy)
        return [results[clustering][1] for clustering in self.ids(policy)]

    def _of(self, policy: str) -> dict[str, tuple[str, bytes]]:
        return self._results.get(policy, {})


def _check(read: ClustersRecord) -> None:
    """Raise msgspec.DecodeError for a result without its clusters, or with clusters of other slots."""
    if read.status == "released":
        clusters, slots = read.clusters or (), len(read.slots)
        if (
            not clusters
            or read.users is None
            or read.unit is None
            or any(len(each.centre) != slots for each in clusters)
        ):
            raise msgspec.DecodeError("a result without a centre for each slot")
