"""The package `hatcast`: light to import, described, and nothing private by accident. Types: tests/typed_script.py."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import hatcast
from hatcast.stream.errors import HatcastError
from tests.api_data import readings
from tests.folding import record
from tests.unit.test_api_policy import policy

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "polars", "pandas", "pyarrow", "h3", "opendp", "kafka", "aiokafka", "faust", "msgspec", "click")


def test_importing_the_package_loads_no_library() -> None:
    script = f"import sys, hatcast; print([each for each in {HEAVY!r} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_policy_and_a_run_need_neither_polars_nor_pandas_nor_matplotlib(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name in ('polars', 'pandas', 'matplotlib', 'tomlkit'):\n"
        "            raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import hatcast\n"
        f"policy = {policy()!r}\n".replace("Policy(", "hatcast.Policy(", 1)
        + f"open('r.jsonl', 'wb').write({record()!r})\n"
        "print(hatcast.batch('r.jsonl', policy, format='jsonl', ledger='l').to_arrow().num_rows)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_a_missing_package_is_the_line_that_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = hatcast.batch(pl.DataFrame(readings()), policy(), ledger=tmp_path / "ledger")
    for package, extra in (("polars", "research"), ("pandas", "pandas")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(HatcastError) as refused:
            getattr(released, f"to_{package}")()
        assert str(refused.value) == (
            f"this needs {package}, which is not installed: run  pip install 'hatcast[{extra}]'"
        )


def test_every_public_name_is_loaded_and_described() -> None:
    for name in hatcast.__all__:
        assert name in dir(hatcast)
        value = getattr(hatcast, name)
        if callable(value):
            assert inspect.getdoc(value)
    with pytest.raises(AttributeError, match="has no attribute 'bath'"):
        _ = hatcast.bath


def test_checkers_of_types_see_every_public_name_from_where_it_is_loaded() -> None:
    (typed,) = [each for each in ast.parse(Path(hatcast.__file__).read_text()).body if isinstance(each, ast.If)]
    imported = [each for each in typed.body if isinstance(each, ast.ImportFrom)]
    assert {name.asname: each.module for each in imported for name in each.names} == hatcast._MODULES


def test_only_a_function_named_raw_returns_private_figures() -> None:
    functions = {name for name in hatcast.__all__ if inspect.isfunction(getattr(hatcast, name))}
    names = {"batch", "estimates", "load_settings", "plan", "plan_continual", "raw_means", "read", "running_means"}
    assert functions == names
    assert "Not private" in (inspect.getdoc(hatcast.raw_means) or "")


OF_COMMANDS = {
    "agents/batch/ledger_database.py": "`hatcast budget backup`",
    "agents/batch/ledger_days.py": "`hatcast budget show --ledger`, but for the lines that name a command",
    "agents/config/template.py": "`hatcast init`",
    "agents/kafka/topic_rules.py": "options of Kafka's own commands",
    "lab/plan/write.py": "`hatcast plan tracker --write`",
    "stream/areas.py": "`hatcast cells`",
    "stream/readings/formats/__init__.py": "`hatcast init` and `demo`, which print the next command",
}
"""Files whose texts the Python API does not show -> what shows them."""


def options_in(source: str) -> list[str]:
    """Options of the command line in the texts of a module, but for docstrings and whole commands in backticks."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]
    return [text for text in texts if re.search(r"(?<![\w-])--[a-z]", re.sub(r"`[^`]*`", "", text))]


def test_no_error_that_the_api_raises_names_an_option_of_the_command_line() -> None:
    rooms = ("api", "batch", "recordings", "config", "tables", "export", "kafka")
    files = [
        path
        for room in ("stream", "lab/plan", *(f"agents/{room}" for room in rooms))
        for path in (ROOT / room).rglob("*.py")
    ]
    found = {str(path.relative_to(ROOT)): options_in(path.read_text()) for path in files}
    assert {name: texts for name, texts in found.items() if texts and name not in OF_COMMANDS} == {}
    assert [name for name in OF_COMMANDS if not found[name]] == []
    source = 'def f():\n    """--x"""\n    raise E(f"{p}: use `a --b` or --c", "--d")'
    assert sorted(options_in(source)) == ["--d", ": use `a --b` or --c"]
