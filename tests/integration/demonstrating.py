"""A demo as it is typed, and the batch run that it is compared with."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tests.integration.tables import DEFAULTS, golden_table, merged, toml
from tests.invoked import printed
from tests.services.data import DATA, ROOT, golden

EDGE = DATA / "golden" / "edge.jsonl"
# Not `jsonschema.validate`, which looks through the schema for each record: tests/contracts do so once.
OF_RELEASE, OF_ANSWER = (
    Draft202012Validator(json.loads((ROOT / "schemas" / f"{name}.schema.json").read_bytes()))
    for name in ("release", "query")
)
SECONDS = 200  # a demo starts Kafka, Redis and a worker: on a machine with much else to do, that takes long


@contextmanager
def demo(temporary: Path, *arguments: object, cwd: Path = ROOT) -> Iterator["subprocess.Popen[bytes]"]:
    """A demo that runs, with its temporary files in that folder; killed if the test leaves it running."""
    with subprocess.Popen(
        [sys.executable, "-m", "hatcast", "demo", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(temporary: Path, *arguments: object, cwd: Path = ROOT) -> tuple[int, bytes, bytes]:
    """Exit code, output and errors of a demo that ends by itself."""
    with demo(temporary, *arguments, cwd=cwd) as process:
        out, err = process.communicate(timeout=SECONDS)
        return process.returncode, out, err


def releases(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def edge_config(tmp_path: Path, policy: Mapping[str, Any] | None = None, **privacy: Any) -> Path:
    """The configuration of the golden result of edge.jsonl, with BASELINE. policy: more keys of it."""
    return configured(tmp_path, golden_table(golden("edge"), name="edge", privacy=privacy, **(policy or {})))


def configured(tmp_path: Path, table: Mapping[str, Any]) -> Path:
    config = tmp_path / "hatcast.toml"
    config.write_text(toml(merged(DEFAULTS, table)))
    return config


def processes_below(folder: Path) -> list[int]:
    """The processes that work for a demo whose temporary files are below a folder."""
    found = []
    for status in Path("/proc").glob("[0-9]*"):
        try:
            told = (status / "cmdline").read_bytes() + (status / "environ").read_bytes()
        except OSError:  # it has ended, or is not ours
            continue
        if str(folder).encode() in told and status.name != str(os.getpid()):
            found.append(int(status.name))
    return found


def wait_until_gone(folder: Path, seconds: float = 10.0) -> None:
    """Return once nothing of a demo is left, neither processes nor files."""
    deadline = time.monotonic() + seconds
    while (processes_below(folder) or any(folder.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_below(folder) == []
    assert sorted(folder.iterdir()) == []


def wait_for_output(process: "subprocess.Popen[bytes]") -> bytes:
    """The first line that it prints."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], SECONDS)[0], "it printed nothing"
    return process.stdout.readline()


def batch(*arguments: object) -> Mapping[str, list[int]]:
    """HAT -> users, count, sum, max."""
    hats: dict[str, list[int]] = json.loads(printed("batch", *arguments, "--contributions", "--json"))["hats"]
    return hats
