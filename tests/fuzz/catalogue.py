"""All targets."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.fuzz import files, records, requests, stored, telemetry
from tests.fuzz.target import Target
from tests.services import open_redis


@contextmanager
def load_targets() -> Iterator[Mapping[str, Target]]:
    """Yield all targets by name, with a Redis of their own. Raises ServiceAbsent where there is none."""
    with open_redis() as redis:
        parts = (telemetry.targets(), records.targets(), requests.targets(), files.targets(), stored.targets(redis.url))
        yield {target.name: target for part in parts for target in part}
