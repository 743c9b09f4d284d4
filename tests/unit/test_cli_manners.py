"""What every command does: an example in its help, colours for terminals only, errors in one line."""

import io
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hatcast.agents.cli import COMMANDS, hatcast, main
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.errors import causes
from hatcast.agents.kafka import client
from hatcast.agents.kafka.client import wait_for_broker
from hatcast.agents.redis.connection import connect_redis
from hatcast.stream.errors import HatcastError
from tests.batching import CONFIG, recording_of
from tests.commands import problem_of, said_in
from tests.folding import HOUR, NOON

ROOT = Path(__file__).parents[2]
ESCAPE = "\x1b"


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(hatcast, info_name="hatcast")
    for name in COMMANDS:
        command = hatcast.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())


@pytest.mark.parametrize(("name", "command"), [pytest.param(*each, id=each[0]) for each in commands()])
def test_every_help_has_an_example_that_is_right(name: str, command: click.Command) -> None:
    result = CliRunner().invoke(hatcast, [*name.split(), "--help"], terminal_width=200)
    assert result.exit_code == 0
    found = re.search(r"xamples?:(.*)", result.output, re.IGNORECASE | re.DOTALL)
    assert found is not None
    said = [*said_in(found[1])]
    assert said
    assert [problem for problem in map(problem_of, said) if problem is not None] == []
    assert any(" ".join(words[1:]).startswith(name) for words in said)


def test_every_file_of_a_command_is_listed() -> None:
    files = [*(ROOT / "agents" / "cli").glob("*.py"), *(ROOT / "lab" / "cli").glob("*.py")]
    assert {path.stem for path in files if "\ndef command(" in path.read_text()} == set(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["wrker"], "did you mean worker?; see hatcast --help"),
        (["worker", "--no-such"], "hatcast worker: no such option: --no-such; see hatcast worker --help"),
        (["feed", "replay"], "see hatcast feed replay --help"),
        (["batch", "x", "--format", "none"], "'jsonl', 'itms'"),
        (["batch", "x", "--format", "gtfsrt"], "did you mean gtfs-rt?; see hatcast batch --help"),
        (["feed", "mqt"], "hatcast feed: no such command 'mqt', did you mean mqtt?; see hatcast feed --help"),
        (["tail", "--estimate"], "no such option: --estimate, did you mean --estimates?; see hatcast tail --help"),
        (["cluster", "offline", "x", "--epsilon", "abc"], "'abc' is not a number; see hatcast cluster offline --help"),
        (["tail", "--max", "abc"], "'abc' is not an integer; see hatcast tail --help"),
        (["query", "x", "--threshold", "nan"], "write a finite number; see hatcast query --help"),
        (["doctor", "surplus"], "hatcast doctor: got unexpected extra argument"),
        (["audit", "my.toml"], "argument (my.toml): a configuration is named with --config; see hatcast audit --help"),
        (["plan", "my.toml"], "no such command 'my.toml': a configuration is named with --config; see hatcast plan"),
        (["check", "a.csv", "my.toml"], "got unexpected extra argument (my.toml); see hatcast check --help"),
        (
            ["init", "--config", "none.toml", "--format", "gtfs-rt", "--header-time"],
            "options of columns and --header-time are for --recording: give both; see hatcast init --help",
        ),
        (
            ["budget", "show", "--config", "/none/hatcast.toml"],
            "hatcast: /none/hatcast.toml: no such file; create it with `hatcast init`, or name",
        ),
    ],
)
def test_what_goes_wrong_is_one_line_that_says_what_to_do(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["hatcast", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == (1 if says.startswith("hatcast: ") else 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert says in err


def test_the_list_of_commands_loads_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise AssertionError(name)

    monkeypatch.setattr("importlib.import_module", load)
    result = CliRunner().invoke(hatcast, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.output for name in COMMANDS)


def test_the_list_of_commands_needs_little_beside_click() -> None:
    code = (
        "import sys, click; before = set(sys.modules); from hatcast.agents.cli import hatcast;"
        "hatcast.main(['--help'], 'hatcast', standalone_mode=False);"
        "print(*{name for name in set(sys.modules) - before if not name.startswith('hatcast')}, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"ssl", "socket", "difflib", "asyncio", "msgspec", "numpy"} & set(ended.stderr.split())
    assert len(ended.stderr.split()) < 40, ended.stderr


class Output(io.TextIOWrapper):
    """What is written to it, text or bytes."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", write_through=True)

    def getvalue(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


class Terminal(Output):
    def isatty(self) -> bool:
        return True


def output_of(
    arguments: list[str], stream: Output, monkeypatch: pytest.MonkeyPatch, errors: Output | None = None
) -> str:
    with monkeypatch.context() as patched:
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            patched.delenv(name, raising=False)
        patched.setenv("TERM", "xterm-256color")
        patched.setattr(sys, "stdout", stream)
        patched.setattr(sys, "stderr", stream if errors is None else errors)
        patched.setattr(sys, "argv", ["hatcast", *arguments])
        try:
            main()
        except SystemExit as ended:
            assert ended.code in (0, 1)
    return stream.getvalue()


DOCTOR = ["doctor", "--config", "/none/hatcast.toml"]  # a problem, in red
RECORDING = ROOT / "tests" / "data" / "golden" / "edge.jsonl"
FOLDED = ["batch", str(RECORDING), "--format", "jsonl", "--config", str(ROOT / "hatcast.toml")]


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert f"{ESCAPE}[1;31m" in output_of(DOCTOR, Terminal(), monkeypatch)
    assert ESCAPE not in output_of(DOCTOR, Output(), monkeypatch)


def test_no_color_takes_them_from_terminals_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    said = output_of(DOCTOR, Terminal(), monkeypatch)
    assert "problem" in said
    assert f"{ESCAPE}[1;31m" not in said


def test_bars_of_progress_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"{ESCAPE}[?25l" in output_of(FOLDED, Terminal(), monkeypatch)  # a bar hides the cursor
    assert "folding" in output_of(FOLDED, Terminal(), monkeypatch)
    said = output_of(FOLDED, Output(), monkeypatch)
    assert "accepted" in said
    assert said.endswith("no releases: add --ledger FILE\n")
    assert "no releases" not in output_of([*FOLDED, "--json"], Output(), monkeypatch)
    assert ESCAPE not in said


def test_releases_have_a_bar_that_is_never_between_lines_of_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hatcast.toml").write_text(CONFIG)
    file = recording_of(tmp_path / "recording.jsonl", NOON, NOON + 2 * HOUR)
    released = ["batch", str(file), "--format", "jsonl", "--config", str(tmp_path / "hatcast.toml")]
    released += ["--ledger", str(tmp_path / "ledger")]
    assert "releasing" in output_of(released, Terminal(), monkeypatch)
    assert "releasing" not in output_of([*released, "--json"], Terminal(), monkeypatch)
    errors = Terminal()
    lines = output_of([*released, "--json"], Output(), monkeypatch, errors).splitlines()
    assert "releasing" in errors.getvalue()
    assert lines
    assert all(line.startswith("{") for line in lines)


@pytest.mark.parametrize(
    ("wait", "name"), [(wait_for_broker, "Kafka at 127.0.0.1:1"), (connect_redis, "Redis at 127.0.0.1:1")]
)
def test_a_wait_for_a_service_is_said_once_and_to_terminals_only(
    wait: Callable[[Settings, float], object], name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hatcast.toml").write_text(
        f'{CONFIG}\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[redis]\nurl = "redis://:secret@127.0.0.1:1/0"\n'
    )
    settings = load_settings(tmp_path / "hatcast.toml")
    monkeypatch.setattr(causes, "NOTICE_S", 0.05)
    monkeypatch.setattr(client, "ATTEMPT_SECONDS", 0.1)
    for stream in (Terminal(), Output()):
        with monkeypatch.context() as patched, pytest.raises(HatcastError, match=f"{name} cannot be reached"):
            patched.setattr(sys, "stderr", stream)
            wait(settings, 0.5)
        told = f"hatcast: waiting for {name} (up to 0.5 s)\n"
        assert stream.getvalue() == (told if stream.isatty() else "")


def test_no_help_has_a_range_without_an_end_or_a_summary_that_is_cut_off() -> None:
    for arguments in (["query"], ["keys"], ["cluster"]):
        said = CliRunner().invoke(hatcast, [*arguments, "--help"]).output.partition("\n")[2]  # below the usage
        assert said
        assert [each for each in ("None", "...\n", "[default: (") if each in said] == []
