"""The Helm chart, rendered by Helm in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from hatcast.agents.config.settings import Settings, load_settings
from tests.services.absent import ServiceAbsent
from tests.services.data import ROOT
from tools import chart

Object = dict[str, Any]

NAMES: Final = ("everything", "external", "minimal", "strimzi")


def values(name: str) -> Object:
    """The values of an example."""
    loaded: Object = yaml.safe_load((chart.EXAMPLES / f"{name}.yaml").read_text())
    return loaded


@cache
def rendered(name: str) -> list[Object]:
    """The objects of an example, by Helm."""
    return render(chart.EXAMPLES / f"{name}.yaml")


def render(path: Path) -> list[Object]:
    """The objects that the chart makes of a file of values."""
    done = run_helm(path)
    assert done.returncode == 0, done.stdout + done.stderr
    objects: list[Object] = json.loads(done.stdout)
    return objects


def run_helm(path: Path) -> "subprocess.CompletedProcess[str]":
    """Lint and render with a file of values. In its own process: Helm brings Go's threads, and other tests fork."""
    command = [sys.executable, "-m", "tools.chart", "--render", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == chart.ABSENT:
        raise ServiceAbsent(done.stderr.splitlines()[-1])
    return done


def changed(name: str, folder: Path, **tables: Any) -> Path:
    """A file with the values of an example, some replaced."""
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(chart.merged(values(name), tables)))
    return path


def of_kind(name: str, *kinds: str) -> list[Object]:
    return [made for made in rendered(name) if made["kind"] in kinds]


def pods(objects: list[Object]) -> Iterator[tuple[Object, Object]]:
    """Labels and spec of each pod, by whatever object it is made."""
    for made in objects:
        if made["kind"] == "Pod":
            yield made["metadata"]["labels"], made["spec"]
        elif made["kind"] in ("Deployment", "Job"):
            yield made["spec"]["template"]["metadata"]["labels"], made["spec"]["template"]["spec"]


def containers(name: str) -> Iterator[Object]:
    for _, spec in pods(rendered(name)):
        yield from spec["containers"]


def settings_of(name: str, role: str, folder: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """hatcast.toml of a role, beside the other files of the ConfigMap, read by hatcast."""
    (config,) = (made for made in of_kind(name, "ConfigMap") if f"{role}.toml" in made["data"])
    for file, text in config["data"].items():
        (folder / file).write_text(text)
    return load_settings(folder / f"{role}.toml", environment or {})
