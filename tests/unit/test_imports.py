"""Imports and calls: the contracts of .importlinter, and those that it cannot check.

Among them docs/specification/release.md, Invariants, I6.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[2]
SIMULATION = "# simulation"  # the mark of a line that may draw random numbers, since it makes vehicles and not noise
CLOCK_READERS = {
    *(f"time.{name}{unit}" for name in ("time", "monotonic", "perf_counter") for unit in ("", "_ns")),
    *(f"datetime.datetime.{name}" for name in ("now", "utcnow", "today")),
    "datetime.date.today",
}


def modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def names_in(path: Path) -> list[tuple[int, str]]:
    """Those of a file, which several tests look at."""
    return list(names_used(path.read_text()))


def names_used(source: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything imported, and of every attribute read of something imported."""
    tree = ast.parse(source)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            parts = [node.attr]
            value = node.value
            while isinstance(value, ast.Attribute):
                parts.append(value.attr)
                value = value.value
            if isinstance(value, ast.Name) and value.id in known:
                yield node.lineno, ".".join([known[value.id], *reversed(parts)])


def is_within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def offences(*folders: str, banned: tuple[str, ...], mark: str | None = None) -> list[str]:
    """``file:line name`` of every use of what is banned, lines with the mark apart."""
    found = []
    for path in modules(*folders):
        text = path.read_text()
        if not any(all(part in text for part in name.split(".")) for name in banned):
            continue  # each part of a name that is used is written somewhere: most files need no parsing
        lines = text.splitlines()
        found += [
            f"{path.relative_to(ROOT)}:{number} {name}"
            for number, name in names_in(path)
            if is_within(name, *banned) and not (mark and mark in lines[number - 1])
        ]
    return found


def test_modules_import_each_other_in_the_order_of_the_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True, is_debug_mode=False) == 0


def test_random_numbers_are_drawn_only_on_lines_marked_as_simulation() -> None:
    assert offences("stream", "agents", "lab", banned=("random", "numpy.random", "scipy.stats"), mark=SIMULATION) == []


def test_only_the_system_mechanism_of_the_core_draws_noise() -> None:
    found = [*offences("stream", banned=("opendp", "secrets")), *offences("lab", banned=("opendp",))]
    assert [each for each in found if not each.startswith("stream/mechanisms/system.py:")] == []


def test_the_system_mechanism_is_passed_in_and_imported_by_nothing_in_the_core() -> None:
    assert offences("stream", banned=("hatcast.stream.mechanisms.system",)) == []


def test_only_one_module_reads_the_clock() -> None:
    found = offences("stream", "agents", "lab", banned=tuple(CLOCK_READERS))
    assert [each for each in found if not each.startswith("agents/clock.py:")] == []


def test_only_one_module_reads_time_zone_data() -> None:
    imports = re.compile(
        r"^\s*(from|import) (zoneinfo|tzdata)\b", re.MULTILINE
    )  # by text: also of all tests, in no time
    folders = ("stream", "agents", "lab", "tests", "bench", "tools")
    found = {str(path.relative_to(ROOT)) for path in modules(*folders) if imports.search(path.read_text())}
    assert found == {"stream/time_zones.py", "tests/other_tzdata.py"}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import numpy as np\nnp.random.default_rng()", "numpy.random"),
        ("from numpy import random as r", "numpy.random"),
        ("from time import time_ns", "time.time_ns"),
        ("import datetime as d\nd.datetime.now()", "datetime.datetime.now"),
        ("from datetime import datetime\ndatetime.now()", "datetime.datetime.now"),
        ("def f():\n    from opendp.measurements import make_laplace", "opendp"),
    ],
)
def test_a_banned_name_is_found_however_it_is_written(source: str, name: str) -> None:
    assert any(is_within(used, name) for _, used in names_used(source))


def users_of(banned: str, allowed: Callable[[str], bool]) -> list[str]:
    return [each for each in offences("stream", "agents", "lab", banned=(banned,)) if not allowed(each)]


def test_only_the_list_of_commands_loads_the_laboratory_and_only_init_asks_it_to() -> None:
    named = {
        path.relative_to(ROOT).as_posix() for path in modules("stream", "agents") if "hatcast.lab" in path.read_text()
    }
    assert named == {"agents/cli/__init__.py"}
    assert {
        each.partition(":")[0] for each in offences("stream", "agents", banned=("hatcast.agents.cli.laboratory",))
    } == {"agents/cli/init.py"}


def test_only_the_commands_that_evaluate_import_the_simulation() -> None:
    commands = ("evaluate.py:", "evaluate_models.py:")
    own = ("lab/evaluate/", *(f"lab/cli/{command}" for command in commands))
    assert users_of("hatcast.lab.evaluate", lambda each: each.startswith(own)) == []


def test_what_is_printed_wrongly_in_the_papers_is_only_for_evaluate() -> None:
    own = ("lab/evaluate/", "stream/estimators/array_length.py:")
    for name in ("PRINTED_RULES", "minimax_convex_printed"):
        assert users_of(f"hatcast.stream.estimators.array_length.{name}", lambda each: each.startswith(own)) == []


def test_random_numbers_are_drawn_in_three_files_of_simulations() -> None:
    marked = [
        path.relative_to(ROOT).as_posix()
        for path in modules("stream", "agents", "lab")
        if SIMULATION in path.read_text()
    ]
    assert marked == [
        "agents/sources/synthetic.py",
        "lab/audit/hats.py",
        "lab/evaluate/simulation.py",
    ]
