"""Environments of the programs, made at the first use below .cache/: locked wheels with uv, jars with Maven."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
CACHE: Final = ROOT / ".cache" / "bench"
# Both frameworks have wheels for these.
PYTHONS: Final = ">=3.11,<3.13"
JVM: Final = HERE / "kafka_streams"
_COPY_JARS: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_SECONDS: Final = 900.0


class EnvironmentAbsent(Exception):
    """Raised if an environment cannot be made here; the message is one line that names the missing tool."""


def python_command(framework: str) -> list[str]:
    """Return the command line of a Python program, in an environment with `framework`.txt. Raises EnvironmentAbsent."""
    lock = HERE / f"{framework}.txt"
    folder = _folder(framework, lock.read_bytes())
    python = folder / "bin" / "python"
    if not _is_made(folder):
        uv = _found("uv", ROOT / ".cache" / "bin" / "uv")
        _say(f"installing {framework} from PyPI into {folder.relative_to(ROOT)} (once)")
        _run([uv, "venv", "--quiet", "--clear", "--python", PYTHONS, str(folder)])
        _run(
            [
                uv,
                "pip",
                "sync",
                "--quiet",
                "--require-hashes",
                "--only-binary",
                ":all:",
                "--python",
                str(python),
                str(lock),
            ]
        )
        _made(folder)
    return [str(python), "-m", f"bench.frameworks.{framework}"]


def java_command() -> list[str]:
    """Return the command line of the Kafka Streams program. Raises EnvironmentAbsent."""
    source, pom, listed = JVM / "Fold.java", JVM / "pom.xml", JVM / "jars.txt"
    java, javac = _found("java"), _found("javac")
    folder = _folder("kafka_streams", source.read_bytes() + pom.read_bytes() + listed.read_bytes())
    if not _is_made(folder):
        maven = _found("mvn")
        _say(f"fetching Kafka Streams from Maven Central into {folder.relative_to(ROOT)} (once)")
        shutil.rmtree(folder, ignore_errors=True)
        jars = ["-DincludeScope=runtime", f"-DoutputDirectory={folder / 'libs'}"]
        _run([maven, "-q", "-B", "-f", str(pom), _COPY_JARS, *jars])
        _check(folder / "libs", listed)
        _run([javac, "--release", "17", "-cp", f"{folder}/libs/*", "-d", str(folder / "classes"), str(source)])
        _made(folder)
    return [java, "-cp", f"{folder}/classes:{folder}/libs/*", "Fold"]


def _check(folder: Path, listed: Path) -> None:
    """Compare the jars with their list. Raises EnvironmentAbsent for another one, one more or one less."""
    lines = [line.split() for line in listed.read_text().splitlines() if not line.startswith("#")]
    wanted = {name: digest for digest, name in lines}
    found = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.iterdir()}
    if found != wanted:
        names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
        raise EnvironmentAbsent(f"Maven's jars are not those of {listed.name}: {', '.join(names)}")


def _folder(name: str, contents: bytes) -> Path:
    return CACHE / f"{name}-{hashlib.sha256(contents).hexdigest()[:12]}"


def _is_made(folder: Path) -> bool:
    return (folder / ".made").is_file()


def _made(folder: Path) -> None:
    (folder / ".made").touch()  # last: an environment of which half was made is made again


def _found(program: str, other: Path | None = None) -> str:
    found = shutil.which(program)
    if found is None and other is not None and other.is_file():
        return str(other)
    if found is None:
        raise EnvironmentAbsent(f"there is no {program}")
    return found


def _run(command: Sequence[str]) -> None:
    """Run a command. Raises EnvironmentAbsent with the last line of what it printed if it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentAbsent(f"{Path(command[0]).name} did not end within {_SECONDS:.0f} s") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        reason = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no reason given")
        raise EnvironmentAbsent(f"{Path(command[0]).name} failed: {reason[:200]}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
