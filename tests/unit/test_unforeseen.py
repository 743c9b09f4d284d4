"""Errors that nobody foresaw: their type and place are printed, and their text with HATCAST_DEBUG_ERRORS=1 only."""

import ast
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
import msgspec
import pytest

import hatcast.agents.cli
from hatcast.agents.errors.unexpected import DEBUG_VARIABLE, ErrorTextFilter, brief, trace_of
from hatcast.agents.monitoring.logs import redact_errors
from hatcast.stream.errors import HatcastError
from tests.services.data import ROOT

SECRET: Final = "GJ05BX1234 38.5"


class Command(Exception):
    """As a client raises it: with what it was to send."""


def parse() -> None:
    msgspec.json.decode(b'"38.5"', type=float)


def send() -> None:
    raise Command(SECRET)


def fail() -> None:
    try:
        send()
    except Command as error:
        raise KeyError(SECRET) from error


@pytest.fixture
def caught() -> KeyError:
    with pytest.raises(KeyError) as raised:
        fail()
    return raised.value


def test_an_error_is_its_type_and_the_innermost_place_of_ours() -> None:
    with pytest.raises(click.UsageError) as raised:
        hatcast.agents.cli.hatcast.main(["nonsense"], standalone_mode=False)
    assert re.fullmatch(r"UsageError at [\w/]+\.py:\d+", brief(raised.value))
    with pytest.raises(msgspec.ValidationError) as invalid:
        parse()
    assert brief(invalid.value) == f"ValidationError at test_unforeseen.py:{parse.__code__.co_firstlineno + 1}"


def test_a_trace_has_the_places_and_types_of_all_causes(caught: KeyError) -> None:
    lines = trace_of(caught)
    assert [line for line in lines if " in " not in line] == ["Command", "KeyError"]
    assert SECRET not in "".join(lines)


def test_the_debug_switch_adds_the_text(caught: KeyError, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    assert SECRET in brief(caught)
    assert SECRET in "".join(trace_of(caught))
    assert "".join(trace_of(caught)).count("Traceback") == 2


def last_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What `hatcast budget` writes where something is wrong with it that nobody has thought of."""

    @click.command
    def broken() -> None:
        fail()

    monkeypatch.setattr(hatcast.agents.cli.Commands, "get_command", lambda *_: broken)
    monkeypatch.setattr("sys.argv", ["hatcast", "budget"])
    with pytest.raises(SystemExit) as ended:
        hatcast.agents.cli.main()
    assert ended.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `guard` changes is put back."""
    import sys
    import threading

    for owner, name in ((sys, "excepthook"), (threading, "excepthook"), (sys, "unraisablehook")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(logging, "raiseExceptions", True)
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler())


@pytest.mark.usefixtures("hooks")
def test_a_command_ends_with_one_line_and_without_the_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert re.fullmatch(
        r"hatcast: unexpected KeyError at hatcast/agents/cli/__init__\.py:\d+: this is a bug in hatcast, please"
        r" report this line \(HATCAST_DEBUG_ERRORS=1 adds its text, which may contain a record\)\n",
        last_words(capsys, monkeypatch),
    )
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    assert SECRET in last_words(capsys, monkeypatch)


# What libraries log.


class Kept(logging.Handler):
    """The lines that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(TypeError):  # of a mutant, whose arguments do not fit
            self.lines.append(self.format(record))


@pytest.fixture
def library() -> Iterator[tuple[logging.Logger, Kept]]:
    logger, kept = logging.getLogger("a.library"), Kept()
    kept.addFilter(ErrorTextFilter())
    logger.addHandler(kept)
    logger.propagate = False
    yield logger, kept
    logger.removeHandler(kept)


def all_lines(logger: logging.Logger, error: BaseException) -> None:
    """What a library may write about an error."""
    logger.error("Failed fetch from %s:%s after %.1f s: %s", "kafka-1.example", 9092, 1.5, error)
    logger.error("Could not read %d", error)
    logger.error(f"Committing raised {error!r}")  # noqa: G004 - as libraries do
    logger.error("Committing raised " + str(error))  # noqa: G003 - as above
    logger.error("[^--Fetcher]: Crashed reason=%r", error, exc_info=error)
    logger.error("of %(topic)s: %(error)s", {"topic": "hats.means", "error": error})
    logger.error("read %s", str(error))
    logger.error("waiting for %r", {"a task of": error})


def test_what_libraries_write_keeps_its_own_words_and_loses_those_of_errors(
    library: tuple[logging.Logger, Kept], caught: KeyError
) -> None:
    logger, kept = library
    all_lines(logger, caught)
    place = r"KeyError at test_unforeseen\.py:\d+"
    wanted = [
        rf"Failed fetch from kafka-1\.example:9092 after 1\.5 s: {place}",
        r"a message of a\.library, line \d+, was left out",
        r"a message of a\.library, line \d+, was left out",
        r"a message of a\.library, line \d+, was left out",
        rf"\[\^--Fetcher\]: Crashed reason='{place}' \[.*Command; .*KeyError\]",
        rf"of hats\.means: {place}",
        "read str",
        rf"waiting for \{{'a task of': '{place}'\}}",
    ]
    assert len(kept.lines) == len(wanted)
    for line, pattern in zip(kept.lines, wanted, strict=True):
        assert re.fullmatch(pattern, line), line


def filters() -> dict[str, Callable[[logging.LogRecord], bool]]:
    """Mutants of the filter, each of which leaves one way open."""

    def arguments(record: logging.LogRecord) -> bool:
        record.exc_info = None
        return True

    def tracebacks(record: logging.LogRecord) -> bool:
        record.msg, record.args = "left out", ()
        return True

    return {"arguments": arguments, "tracebacks": tracebacks, "all": lambda _: True}


@pytest.mark.parametrize("mutant", filters())
def test_a_filter_that_leaves_a_way_for_texts_is_seen(mutant: str, caught: KeyError) -> None:
    logger, kept = logging.getLogger(f"another.{mutant}"), Kept()
    logger.propagate = False
    kept.addFilter(filters()[mutant])
    logger.addHandler(kept)
    all_lines(logger, caught)
    assert any(SECRET in line for line in kept.lines)


def test_an_event_of_ours_loses_the_text_of_an_error_wherever_it_is_but_not_that_of_a_refusal(caught: KeyError) -> None:
    for event in ({"exc_info": caught}, {"exc_info": (KeyError, caught, None)}, {"because": caught}):
        assert SECRET not in repr(redact_errors(None, "error", {"event": "it failed", **event}))
    refusal = HatcastError("start again")
    assert redact_errors(None, "error", {"event": "x", "because": refusal})["because"] == "start again"


# In our own code: where the text of an error is put into another text.

# File -> why the text may be seen.
ALLOWED: Final = {
    "agents/sources/endpoint.py": "PEM files of the operator, read before there is any data",
    "agents/sources/connection.py": "SourceLost and SourceRejection, whose texts are ours",
    "agents/errors/causes.py": "searched for codes; not printed",
    "agents/cli/cells.py": "BadArea, whose texts are ours",
    "agents/timetable/tables.py": "the operating system's, of a file that was named",
    "agents/cli/dump.py": "the operating system's, of a file that was named",
    "agents/device/store.py": "SQLite's, which name tables and files and hold no values",
    "agents/cluster/live/state.py": "the same",
    "agents/cluster/live/exchange.py": "librdkafka's: brokers and topics",
    "agents/demo/embedded/__main__.py": "a text of ours",
    "agents/cli/report.py": "the operating system's, of a file that was named",
    "agents/config/template.py": "the same",
    "agents/kafka/client.py": "of the admin client and of sockets: brokers, topics, logins, PEM files",
    "agents/batch/ledger_database.py": "SQLite's and the operating system's, of named files; they hold no values",
    "agents/recordings/files.py": "the operating system's, of a file that was named",
    "agents/kafka/partition_reader.py": "librdkafka's, as the text of another error: brokers and topics",
    "agents/redis/connection.py": "searched for the name of a command",
    "tools/configuration_reference.py": "of our own sources, while hatcast is built",
    "agents/config/settings.py": "of hatcast.toml",
    "lab/plan/write.py": "of hatcast.toml",
    "agents/redis/clients.py": "searched for Redis' code of the error; not printed; the one of SlotMoving is ours",
    "agents/errors/unexpected.py": "what HATCAST_DEBUG_ERRORS=1 shows, and Refusals",
    "stream/policy/toml_tables.py": "of hatcast.toml",
    "stream/readings/formats/siri.py": "NotSiriError, whose texts are ours",
}
_OURS: Final = {"HatcastError", "SettingError", "RecordingError"}


def texts_of_errors(path: Path) -> int:
    """How often a file puts the text of an error, caught or given, into a text, or asks for it."""
    found: set[tuple[int, int]] = set()
    for scope in ast.walk(ast.parse(path.read_text())):
        if isinstance(scope, ast.ExceptHandler):
            names = {scope.name} if getattr(scope.type, "id", None) not in _OURS else set()
        elif isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            names = {each.arg for each in scope.args.args if each.arg == "error"}
        else:
            continue
        for node in (inner for statement in scope.body for inner in ast.walk(statement)):
            value = None
            if isinstance(node, ast.FormattedValue):
                value = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr"):
                value = node.args[0] if node.args else None
            elif isinstance(node, ast.BoolOp):  # {error.strerror or error}
                value = node.values[-1]
            if isinstance(value, ast.Name) and value.id in names:
                found.add((value.lineno, value.col_offset))
    return len(found)


def test_no_code_of_ours_puts_the_text_of_an_error_into_another_text_but_where_it_holds_no_data() -> None:
    files = [path for folder in ("agents", "lab", "stream") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if texts_of_errors(path)}
    assert found <= ALLOWED.keys()


def test_code_that_does_so_is_seen(tmp_path: Path) -> None:
    mutant = tmp_path / "mutant.py"
    mutant.write_text("try:\n    f()\nexcept ValueError as error:\n    raise HatcastError(f'it failed ({error})')\n")
    assert texts_of_errors(mutant) == 1
    mutant.write_text("try:\n    f()\nexcept ValueError as error:\n    log.warning('x', error=str(error))\n")
    assert texts_of_errors(mutant) == 1
