"""The fixture `pipeline`: a pipeline of a test's own, with what the mark `pipeline` of its file or test says.

`pytest.mark.pipeline(CHANGES, topics=True)`: `CHANGES` to the configuration's tables; with `topics` they are
made before the test, else by whatever starts first.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.services import KafkaServer, RedisServer

if TYPE_CHECKING:  # it loads half of the product
    from tests.integration.harness import Pipeline


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", "pipeline(changes, topics): what the fixture `pipeline` is made with")


def _asked(changes: Mapping[str, Any] | None = None, *, topics: bool = False) -> tuple[Mapping[str, Any] | None, bool]:
    return changes, topics


@pytest.fixture
def pipeline(
    request: pytest.FixtureRequest, kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> "Iterator[Pipeline]":
    """A pipeline on the run's Kafka and Redis, named after the file."""
    from hatcast.agents.kafka.topics import ensure_topics
    from tests.integration.harness import open_pipeline

    mark = request.node.get_closest_marker("pipeline")
    changes, topics = _asked(*mark.args, **mark.kwargs) if mark else (None, False)
    title = request.path.stem.removeprefix("test_").replace("_", "-")[:14].strip("-")
    with open_pipeline(kafka, redis_server, tmp_path, title, changes) as opened:
        if topics:
            ensure_topics(opened.settings)
        yield opened
