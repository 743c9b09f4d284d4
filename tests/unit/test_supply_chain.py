"""What is installed is known by hash, and the image and the services have no more rights than they need."""

import copy
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from tests.services.data import ROOT
from tools.sbom import findings

LOCK: Final[dict[str, Any]] = tomllib.loads((ROOT / "uv.lock").read_text())
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text()
STEPS: Final = [
    line for line in DOCKERFILE.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")
]
LAST: Final = STEPS[STEPS.index("FROM ${PYTHON}") :]
SERVICES: Final[dict[str, dict[str, Any]]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


def unlocked(lock: dict[str, Any]) -> Iterator[str]:
    """What of a lock does not come from PyPI, or is not known by hash."""
    for package in lock["package"]:
        name = package["name"]
        if package["source"] == {"editable": "."}:
            continue
        if package["source"] != {"registry": "https://pypi.org/simple"}:
            yield f"{name}: its source is {package['source']}"
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        if not files or not all(_HASH.fullmatch(file.get("hash", "")) for file in files):
            yield f"{name}: a file has no hash"


def test_every_locked_package_comes_from_pypi_and_every_file_of_it_has_a_hash() -> None:
    assert len(LOCK["package"]) > 100
    assert list(unlocked(LOCK)) == []
    assert sum(package["source"] == {"editable": "."} for package in LOCK["package"]) == 1


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"source": {"git": "https://example.org/x?rev=1"}}, "its source is"),
        ({"source": {"url": "https://example.org/x.whl"}}, "its source is"),
        ({"source": {"registry": "https://example.org/simple"}}, "its source is"),
        ({"wheels": [{"url": "https://example.org/x.whl"}]}, "a file has no hash"),
        ({"wheels": [], "sdist": {"hash": "md5:0"}}, "a file has no hash"),
    ],
)
def test_a_package_from_elsewhere_or_without_a_hash_is_seen(changes: dict[str, Any], found: str) -> None:
    lock = copy.deepcopy(LOCK)
    lock["package"][0] |= changes
    (seen,) = unlocked(lock)
    assert f"{LOCK['package'][0]['name']}: {found}" in seen


def test_the_image_installs_nothing_but_what_is_locked_by_hash() -> None:
    installs = [step for step in STEPS if re.search(r"\b(pip|pip3|uv|apt-get|curl|wget)\b", step)]
    for command in (part.strip() for step in installs for part in step.removeprefix("RUN ").split("&&")):
        match re.findall(r"\S+", re.sub(r"^\w+=\S+ ", "", command))[:3]:
            case ["pip", "install", *_]:
                assert "--require-hashes" in command
                assert command.endswith("--requirement /tmp/uv.txt")
            case ["uv", "sync" | "export", *_]:
                assert "--frozen" in command
                assert "--no-install-project" in command or "export" in command  # else uv would fetch a build system
            case ["uv", "pip", "install"]:
                assert "--no-index --no-deps" in command or "--no-deps --no-index" in command
            case ["apt-get", "update"]:
                pass
            case ["apt-get", "install", "--yes"]:
                # Not locked by hash but signed by Debian, as the packages of both bases are. They make the environment;
                # none of their files is in the image, which the next test checks.
                packages = command.partition("--no-install-recommends ")[2].split()
                assert packages == ["binutils", "ca-certificates", "python3", "python3-venv"]
            case other:
                assert other[0] not in ("uv", "pip", "pip3", "apt-get", "curl", "wget"), command
    assert not [step for step in STEPS if step.startswith("ADD ")]
    assert re.findall(r"^uv==([\d.]+) ", (ROOT / "ops" / "uv.txt").read_text(), re.MULTILINE)
    assert len(_HASH.findall((ROOT / "ops" / "uv.txt").read_text())) > 5


def test_the_image_has_the_environment_and_the_user_of_its_first_step_and_nothing_else_of_it() -> None:
    copied = [re.sub(r"^COPY (--\S+ )*", "", step).split()[:-1] for step in LAST if step.startswith("COPY ")]
    assert sorted(path for paths in copied for path in paths) == [
        "/app/.venv",
        "/app/sbom.cdx.json",
        "/etc/group",
        "/etc/passwd",
        "/home/hatcast",
        "tools/bytecode.py",
    ]


def test_the_bases_are_one_release_of_debian_and_may_be_named_by_digest() -> None:
    assert [step for step in STEPS if step.startswith("FROM ")] == ["FROM ${DEBIAN} AS build", "FROM ${PYTHON}"]
    debian = re.search(r"^ARG DEBIAN=debian:(\d+)\.\d+-slim(@sha256:[0-9a-f]{64})?$", DOCKERFILE, re.MULTILINE)
    image = r"^ARG PYTHON=gcr\.io/distroless/python3-debian(\d+):nonroot(@sha256:[0-9a-f]{64})?$"
    python = re.search(image, DOCKERFILE, re.MULTILINE)
    assert debian is not None
    assert python is not None
    assert debian[1] == python[1], "the Python that the environment is made for"


def test_the_image_has_no_shell_and_nothing_in_it_needs_one() -> None:
    steps = [re.match(r"(RUN|ENTRYPOINT|CMD|HEALTHCHECK.* CMD) (.*)", step) for step in LAST]
    programs = [json.loads(found[2])[0] for found in steps if found]
    assert programs == ["/app/.venv/bin/python", "/app/.venv/bin/python", "python", "hatcast", "--help"]
    ours = [service for service in SERVICES.values() if service["image"].startswith("hatcast:")]
    assert [service["healthcheck"]["test"][:2] for service in ours] == [["CMD", "python"]] * len(ours)
    assert not [service for service in ours if "entrypoint" in service]
    chart = [file.read_text() for file in (ROOT / "ops" / "helm").rglob("*") if file.is_file()]
    assert {program for text in chart for program in re.findall(r"\bcommand: ?\[(\w+)", text)} == {"python"}
    assert re.findall(r"exec -T worker (\w+)", (ROOT / "scripts" / "compose").read_text()) == ["python"]


def test_of_all_libraries_only_opendps_is_stripped() -> None:
    # strip leaves what is loaded as it is. Not so where a library was changed after linking, as NumPy's OpenBLAS was.
    commands = [part.strip() for step in STEPS for part in step.removeprefix("RUN ").split("&&")]
    stripping = [command for command in commands if command.startswith("strip ")]
    assert stripping == ["strip --strip-unneeded .venv/lib/python3.*/site-packages/opendp/lib/*.so"]


def test_the_image_runs_as_a_numbered_user_and_has_its_bill_of_materials() -> None:
    assert "USER 10001:10001" in LAST
    after = LAST[LAST.index("USER 10001:10001") :]
    assert not [step for step in after if step.startswith(("RUN", "COPY", "USER 0", "USER root"))]
    assert "COPY --from=build /app/sbom.cdx.json /app/sbom.cdx.json" in LAST
    script = (ROOT / "scripts" / "sbom").read_text()
    (made,) = re.findall(r"uv (export .*?) --output-file", DOCKERFILE)
    assert made in script, "the image's is made as scripts/sbom makes and checks it"


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_runs_without_root_on_a_read_only_root_and_without_capabilities(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"[1-9]\d*:\d+", service["user"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "pid", "ipc", "network_mode", "devices"} & service.keys()
    assert re.fullmatch(r"[\w/.-]+:v?\d+\.\d+\.\d+\S*", service["image"]), "a version, and not `latest`"
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    assert not [mount for mount in service.get("volumes", []) if "docker.sock" in mount]


def test_a_bill_of_materials_with_a_wrong_type_or_without_a_hash_is_not_accepted() -> None:
    file = {
        "type": "distribution",
        "url": "https://example.org/a.whl",
        "hashes": [{"alg": "SHA-256", "content": "0" * 64}],
    }
    component = {"type": "library", "name": "a", "version": "1", "purl": "pkg:pypi/a@1", "externalReferences": [file]}
    bom: dict[str, Any] = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": [component]}
    assert findings(bom) == []
    assert len(findings(bom | {"components": []})) == 1
    assert findings(bom | {"components": [component | {"type": "thing"}]})[0].startswith("$.components[0].type: ")
    assert findings(bom | {"components": [component | {"purl": "pkg:generic/a@1"}]}) == [
        "a: it is not a package of PyPI"
    ]
    without = json.loads(json.dumps(component))
    del without["externalReferences"][0]["hashes"]
    assert findings(bom | {"components": [without]}) == ["a: a file has no SHA-256"]
