"""What each output may hold, and the assertion that none holds more."""

from collections.abc import Sequence
from typing import Final

from tests.leaks.cities import City
from tests.leaks.outputs import OFFSETS
from tests.leaks.search import Found, Kind, Output, as_text

_OF_OPERATORS: Final = ("topic .dead_letters", "topic .hatcast", f"topic {OFFSETS}")


def allowed(output: Output) -> set[Kind]:
    """Kinds that an output may hold.

    Under `add_remove` operators see numbers of records (docs/proofs.md has the table), never numbers of users.
    """
    is_public = output.name.startswith(("topic", "map", "file exported")) and output.name not in _OF_OPERATORS
    return set() if is_public else {Kind.READINGS}


def assert_no_leak(city: City, outputs: Sequence[Output]) -> None:
    lengths = {output.name: len(output.content) for output in outputs}
    topics = [f"topic .{each}" for each in ("means", "budget", "dead_letters", "hatcast", *city.fills)]
    wanted = [
        *topics,
        "map, events",
        "display.log /metrics",
        "file display.log",
        "file exported/releases/2022-01-02.parquet",
    ]
    assert [name for name in wanted if not lengths.get(name)] == [], "nothing was written there"
    search = city.search()
    found: list[Found] = [each for output in outputs for each in search.find(output, allowed(output))]
    assert found == [], as_text(found)
