"""Rules about running sums: each that leaves is that of the log; only where Redis has lost data some are missing."""

from collections.abc import Iterator, Mapping
from typing import Final

from tests.faults.facts import Log, Promise, Record, Seen, Violation, release_id_of

_SD: Final = 20.0  # of the noise of both sums, which is far below what one bus adds
_ROUNDED: Final = 0.01  # km/h


def running_right(seen: Seen, releases: Mapping[str, Record], log: Log, promise: Promise) -> Iterator[Violation]:
    """Every final HAT has its sum, or, after a loss, says that it is incomplete; and so do all later ones of its cell.

    Other cells may have been ahead when the horizon ended: their release partitions may have another owner.
    """
    expected = {release_id_of(promise.name, hat) for hat in log.final}
    for name in sorted(expected ^ releases.keys()):
        yield Violation("final", f"{name} is in the log or was released, and not both")
    ended: set[tuple[str, str]] = set()  # cells and their horizons that have no more sums
    for name, record in sorted(releases.items(), key=lambda item: item[1]["end"]):
        horizon, status = (record["cell"], record["running"]["horizon"]), record["status"]
        if status == "incomplete" and seen.lost:
            ended.add(horizon)
        elif status != "released":
            yield Violation("final", f"{name} is {status}")
        elif horizon in ended:
            yield Violation("final", f"{name} is {status}, after the end of its horizon")
        elif name in log.releases:
            yield from _sum(name, record["running"], log.releases[name]["running"])


def _sum(name: str, found: Record, true: Record) -> Iterator[Violation]:
    allowed = _ROUNDED + _SD * (found["sum"]["sd"] + true["sum"]["sd"])
    if abs(found["sum"]["value"] - true["sum"]["value"]) > allowed or found["count"] != true["count"]:
        told = [(each["count"], float(each["sum"]["value"])) for each in (found, true)]
        yield Violation("true value", f"{name}, released and in the log: {told}")
