"""The compose file and the Dockerfile: what the check of `scripts/check` sees, broken one thing at a time."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hatcast.agents.cli import hatcast
from tests.services.data import ROOT

_SPEC: Final = importlib.util.spec_from_file_location("check_compose", ROOT / "scripts" / "check_compose.py")
assert _SPEC is not None
assert _SPEC.loader is not None
check_compose: Final = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(check_compose)
FILE: Final[dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
OURS: Final = ("worker", "feed", "display")

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the compose file needs beside it."""
    for name in ("Dockerfile", "hatcast.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "ops", tmp_path / "ops")
    return tmp_path


def found(folder: Path, change: Change = dict) -> list[str]:
    """Problems of the file after a change to it."""
    parsed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for service in parsed["services"].values():  # each its own, where the file shares one
        service.update(yaml.safe_load(yaml.safe_dump(service)))
    change(parsed)
    (folder / "docker-compose.yml").write_text(yaml.safe_dump(parsed))
    lines: list[str] = check_compose.problems(folder / "docker-compose.yml")
    return lines


def test_the_compose_file_is_as_it_should_be(folder: Path) -> None:
    assert found(folder) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f["services"]["redis"].update(image="redis:latest"), "redis has the image 'redis:latest'"),
        (lambda f: f["services"]["redis"].update(image="redis:7"), "redis has the image 'redis:7'"),
        (lambda f: f["services"]["redis"].pop("user"), "redis runs as root"),
        (lambda f: f["services"]["kafka"].update(user="0:0"), "kafka runs as root"),
        (lambda f: f["services"]["feed"].update(read_only=False), "feed may write its root file system"),
        (lambda f: f["services"]["feed"].update(cap_add=["NET_ADMIN"]), "feed keeps capabilities"),
        (lambda f: f["services"]["feed"].pop("cap_drop"), "feed keeps capabilities"),
        (lambda f: f["services"]["feed"].pop("security_opt"), "feed may gain privileges"),
        (lambda f: f["services"]["display"].update(ports=["8080:8080"]), "display publishes 8080:8080"),
        (lambda f: f["services"]["worker"].pop("mem_limit"), "worker has no mem_limit"),
        (lambda f: f["services"]["worker"].pop("cpus"), "worker has no cpus"),
        (lambda f: f["services"]["worker"].pop("pids_limit"), "worker has no pids_limit"),
        (lambda f: f["services"]["worker"].pop("restart"), "worker has no restart"),
        (lambda f: f["services"]["grafana"].pop("healthcheck"), "grafana has no health check"),
        (lambda f: f["services"]["grafana"].update(healthcheck={"test": ["NONE"]}), "grafana has no health check"),
        (lambda f: f["services"]["grafana"].update(volumes=["./nothing:/x:ro"]), "grafana mounts ./nothing"),
        (lambda f: f["services"]["grafana"].update(volumes=["./ops:/x"]), "grafana mounts ./ops to be written"),
        (
            lambda f: f["services"]["grafana"].update(volumes=["nothing:/x"]),
            "grafana mounts nothing, which is no volume",
        ),
        (lambda f: f["services"]["grafana"].update(networks=["nothing"]), "grafana is on nothing"),
        (lambda f: f["services"]["grafana"].update(depends_on=["nothing"]), "grafana depends on nothing"),
        (lambda f: f["services"]["grafana"].update(no_such_key=1), "$.services.grafana"),
    ],
)
def test_what_is_missing_or_too_much_is_seen(folder: Path, change: Change, said: str) -> None:
    assert any(line.startswith(said) for line in found(folder, change)), found(folder, change)


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("USER 10001:10001", "USER root", "ends as root"),
        ("USER 10001:10001", "", "ends as root"),
        ("HEALTHCHECK ", "# ", "has no HEALTHCHECK"),
        ("FROM python:3.12.12-slim-bookworm AS build", "FROM python AS build", "begins from python"),
        ("FROM python:3.12.12-slim-bookworm\n", "", "has one stage"),
    ],
)
def test_a_dockerfile_that_is_less_safe_is_seen(folder: Path, line: str, instead: str, said: str) -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert line in text
    (folder / "Dockerfile").write_text(text.replace(line, instead))
    assert any(said in each for each in found(folder))


def test_workers_can_be_many() -> None:
    worker = FILE["services"]["worker"]
    assert not worker.keys() & {"container_name", "ports", "hostname"}


def test_what_is_scraped_is_a_service_that_listens_and_is_not_published() -> None:
    scraped = yaml.safe_load((ROOT / "ops" / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"]
    found = {
        name: each["port"]
        for job in scraped
        for each in job.get("dns_sd_configs", ())
        for name in each["names"]
        if name in FILE["services"]
    }
    assert found == dict.fromkeys(OURS, 9464)
    for name in OURS:
        service = FILE["services"][name]
        assert "0.0.0.0:9464" in " ".join(service["command"])
        assert not any("9464" in port for port in service.get("ports", ()))


@pytest.mark.parametrize("name", OURS)
def test_every_command_of_the_compose_file_is_one_of_ours_with_options_that_it_has(name: str) -> None:
    command: Any = hatcast
    context = None
    words = list(FILE["services"][name]["command"])
    while hasattr(command, "get_command"):
        context = command.make_context("hatcast", [], parent=context, resilient_parsing=True)
        command = command.get_command(context, words.pop(0))
        assert command is not None
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options
