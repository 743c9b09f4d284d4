"""All targets."""

from collections.abc import Iterator

from tests.fuzz import files, records, requests, stored, telemetry
from tests.fuzz.target import Target


def load_targets(redis_url: str) -> Iterator[Target]:
    """Yield all targets, with a Redis of their own."""
    for part in (
        telemetry.targets(),
        records.targets(),
        requests.targets(),
        files.targets(),
        stored.targets(redis_url),
    ):
        yield from part
