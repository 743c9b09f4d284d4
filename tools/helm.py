"""Helm's own library, to lint and render the chart where there is no `helm`.

It comes from Maven Central, compiled (com.marcnuri.helm-java, Apache-2.0), once per machine and by its SHA-256: 28 MB
and no compiler, where `go install` of Helm takes minutes of CPU.
"""

import ctypes
import hashlib
import os
import platform
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

VERSION: Final = "0.0.21"  # of helm-java; its Helm is 3.21.0
MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
NAMESPACE: Final = "city"
RELEASE: Final = "surat"
KUBERNETES: Final = "1.31.0"  # of the cluster that there is none of
# Machine -> name of the artefact and its SHA-256.
JARS: Final = {
    "x86_64": ("linux-amd64", "a01b3a7a746e67ac9541d147dabcea0b295ea1cbb0c456a3f2f5b911ce75bf7a"),
}


class HelmAbsent(Exception):
    """Helm's library cannot be had here; the message is one line."""


class HelmError(Exception):
    """Helm rejects the chart or its values; the message is Helm's."""


class _Result(ctypes.Structure):
    _fields_ = [(name, ctypes.c_char_p) for name in ("out", "err", "std_out", "std_err")]


class _LintOptions(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("strict", ctypes.c_int), ("quiet", ctypes.c_int)]


def _fields(text: str, integers: str) -> list[tuple[str, type]]:
    return [(name, ctypes.c_int if name in integers.split() else ctypes.c_char_p) for name in text.split()]


class _TemplateOptions(ctypes.Structure):
    # In the order of the header in the jar, helm-linux-amd64.h.
    _fields_ = _fields(
        "name version chart namespace kubeVersion dependencyUpdate skipCRDs values setFiles valuesFiles certFile"
        " keyFile caFile insecureSkipTlsVerify plainHttp keyring debug repositoryConfig",
        integers="dependencyUpdate skipCRDs insecureSkipTlsVerify plainHttp debug",
    )


def library() -> Path:
    """Return the path of the library; fetch it at the first call. Raises HelmAbsent."""
    if sys.platform != "linux" or platform.machine() not in JARS:
        raise HelmAbsent(f"no Helm library for {sys.platform} on {platform.machine()}: check the chart with helm lint")
    name, digest = JARS[platform.machine()]
    cache = os.environ.get("HATCAST_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "hatcast"
    )
    target = Path(cache) / f"helm-java-{VERSION}" / f"helm-{name}.so"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            jar = Path(folder) / "helm.jar"
            jar.write_bytes(_fetch(name, digest))
            with zipfile.ZipFile(jar) as archive:
                made = Path(archive.extract(target.name, folder))
            made.replace(target)  # whole or not at all: two runs side by side do not see each other's halves
    return target


def _fetch(name: str, digest: str) -> bytes:
    base = os.environ.get("HATCAST_MAVEN_REPOSITORY", MAVEN_CENTRAL).rstrip("/")
    address = f"{base}/com/marcnuri/helm-java/{name}/{VERSION}/{name}-{VERSION}.jar"
    sys.stderr.write(f"fetching Helm's library (28 MB) from {base}\n")
    try:
        with urllib.request.urlopen(address, timeout=120) as reply:  # noqa: S310 - an https address of ours
            jar: bytes = reply.read()
    except (urllib.error.URLError, OSError) as error:
        raise HelmAbsent(f"Helm's library cannot be fetched from {base}: {error}") from error
    if hashlib.sha256(jar).hexdigest() != digest:
        raise HelmAbsent(
            f"Helm's library from {base} is not the one that tools/helm.py names: clear a proxy's copy of it"
        )
    return jar


def lint(chart: Path) -> str:
    """Return what `helm lint --strict` says. Raises HelmError if it fails, HelmAbsent."""
    loaded = ctypes.CDLL(str(library()))
    loaded.Lint.restype = _Result
    with _without_log():
        result = loaded.Lint(ctypes.byref(_LintOptions(path=str(chart).encode(), strict=1)))
    said = _output(result)
    if "Failed: true" in said:
        raise HelmError(said)
    return said


def template(chart: Path) -> str:
    """Return what `helm template` prints, hooks apart. Raises HelmError for Helm's errors, HelmAbsent."""
    loaded = ctypes.CDLL(str(library()))
    loaded.Template.restype = _Result
    named = {"name": RELEASE, "namespace": NAMESPACE, "chart": str(chart), "kubeVersion": KUBERNETES}
    options = _TemplateOptions(**{name: value.encode() for name, value in named.items()})
    with _without_log():
        result = loaded.Template(ctypes.byref(options))
    return _output(result)


@contextmanager
def _without_log() -> Iterator[None]:
    """Keep Helm's log off standard error: it names each link of the chart, and each check without values."""
    before = os.dup(2)
    try:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _output(result: _Result) -> str:
    if result.err:
        raise HelmError(result.err.decode())
    return (result.out or b"").decode()
