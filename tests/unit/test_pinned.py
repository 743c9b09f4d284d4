"""Each setting that decides a reading has a row in docs/specification/fold.md that says where it is fixed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hatcast.agents.config.settings import KafkaTable, RedisTable, Settings, WorkerTable
from hatcast.agents.config.tables import TopicsTable
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Columns, FormatChoice
from hatcast.stream.readings.positions import Derivation

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "specification" / "fold.md"
# From the bytes of a record to the contribution, in workers, batch and devices.
FILES: Final = (
    ROOT / "agents" / "worker" / "folds.py",
    ROOT / "agents" / "batch" / "fold.py",
    ROOT / "agents" / "device" / "fold.py",
    ROOT / "agents" / "sources" / "filter.py",
    ROOT / "stream" / "policy" / "formats.py",
    ROOT / "stream" / "hybrid" / "report_fold.py",
    *sorted((ROOT / "stream" / "fold").glob("*.py")),
    *sorted((ROOT / "stream" / "readings").rglob("*.py")),
)
# By the name under which the code has them.
KINDS: Final[dict[str, type]] = {
    "policy": Policy,
    "settings": Settings,
    "topics": TopicsTable,
    "worker": WorkerTable,
    "kafka": KafkaTable,
    "redis": RedisTable,
    "choice": FormatChoice,
    "columns": Columns,
    "derivation": Derivation,
}
# A setting of its own below, or its parts are.
CONTAINERS: Final = {"settings.policy", "settings.topics"}
# Read where topics are opened, and by the choice itself.
ELSEWHERE: Final = {"topics.telemetry", "topics.reports", "choice.name", "choice.columns"}


def settings_of(kind: type) -> set[str]:
    """Fields and properties of a kind of settings."""
    return {*kind.__annotations__, *(name for name, it in vars(kind).items() if isinstance(it, property))}


def read_in(source: str) -> Iterator[str]:
    """The settings that a file reads, such as `policy.unit`: attributes of what is called as in KINDS."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            of = node.value
            name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
            kind = KINDS.get(name.lstrip("_"))
            if kind is not None and node.attr in settings_of(kind):
                yield f"{name.lstrip('_')}.{node.attr}"


def documented() -> set[str]:
    section = PAGE.read_text().partition("\n## What is pinned\n")[2].partition("\n## ")[0]
    inputs = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    return {name for each in inputs for name in re.findall(r"`(\w+\.\w+)`", each)}


def test_a_setting_that_reaches_a_decoder_is_found() -> None:
    source = (
        "def make(self):\n    return decode(self._settings.topics.telemetry_retention, self._policy.name, other.unit)"
    )
    assert set(read_in(source)) == {"settings.topics", "topics.telemetry_retention", "policy.name"}


def test_each_setting_on_the_way_of_a_reading_has_a_row_and_each_row_is_read() -> None:
    found = {name for path in FILES for name in read_in(path.read_text())} - CONTAINERS
    assert found - documented() == set()
    assert documented() - found == ELSEWHERE
