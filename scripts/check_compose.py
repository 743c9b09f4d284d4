"""Check a compose file: against the Compose Specification's own schema, that what it mounts and builds is there, that
every service is pinned, watched, limited and without rights it does not need; and the Dockerfiles that it builds.

``compose-spec.json`` is ``schema/compose-spec.json`` of github.com/compose-spec/compose-go v2.16.2 (Apache-2.0).
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

_TAG = re.compile(r"[^:@\s]+:v?\d+\.\d+(\.\d+)?[\w.-]*(@sha256:[0-9a-f]{64})?")
_DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


def problems(file: Path) -> list[str]:
    """One line for each thing that ``docker compose up`` would refuse, or that makes a service less safe than it is."""
    schema = json.loads(Path(__file__).with_name("compose-spec.json").read_bytes())
    parsed: dict[str, Any] = yaml.safe_load(file.read_text())
    found = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(parsed)]
    if found:
        return found
    for name, service in parsed["services"].items():
        each = [*_missing(file.parent, parsed, service), *_unsafe(service), *_unlimited(service)]
        found += [f"{name} {line}" for line in each]
    builds = {service["build"] for service in parsed["services"].values() if "build" in service}
    for build in sorted(builds):
        dockerfile = file.parent / build / "Dockerfile"
        found += [f"{build}/Dockerfile {line}" for line in _of_dockerfile(dockerfile)]
    return found


def _missing(folder: Path, parsed: dict[str, Any], service: dict[str, Any]) -> Iterator[str]:
    """What it names and is not there."""
    for each in service.get("depends_on", ()):
        if each not in parsed["services"]:
            yield f"depends on {each}, which is no service"
    for each in service.get("networks", ()):
        if each not in (parsed.get("networks") or {}):
            yield f"is on {each}, which is no network"
    for mount in service.get("volumes", ()):
        source = _DEFAULT.sub(r"\1", mount).split(":")[0]
        if source[0] in "./~":
            if not (folder / source).exists():
                yield f"mounts {source}, which is not there"
            if not mount.endswith(":ro"):
                yield f"mounts {source} to be written"
        elif source not in (parsed.get("volumes") or {}):
            yield f"mounts {source}, which is no volume"


def _unsafe(service: dict[str, Any]) -> Iterator[str]:
    """Rights that no service here needs."""
    image = service.get("image", "")
    if not _TAG.fullmatch(image):
        yield f"has the image {image!r}, which is not pinned by version"
    if service.get("user", "0").split(":")[0] in ("0", "root"):
        yield "runs as root: give it a user"
    if service.get("read_only") is not True:
        yield "may write its root file system: read_only"
    if service.get("cap_drop") != ["ALL"] or service.get("cap_add") or service.get("privileged"):
        yield "keeps capabilities: cap_drop [ALL]"
    if "no-new-privileges:true" not in service.get("security_opt", ()):
        yield "may gain privileges: no-new-privileges:true"
    for port in service.get("ports", ()):
        if not str(port).startswith("127.0.0.1:"):
            yield f"publishes {port} to other machines"
    if service.get("network_mode") == "host" or service.get("pid") == "host":
        yield "shares the host's network or processes"


def _unlimited(service: dict[str, Any]) -> Iterator[str]:
    """What it could take without end, or fail at unseen."""
    for key in ("mem_limit", "cpus", "pids_limit", "restart", "logging"):
        if key not in service:
            yield f"has no {key}"
    test = service.get("healthcheck", {}).get("test")
    if not test or "NONE" in test or service["healthcheck"].get("disable"):
        yield "has no health check"


def _of_dockerfile(file: Path) -> Iterator[str]:
    """Stages, pins, user and health check."""
    if not file.is_file():
        yield "is not there"
        return
    lines = file.read_text().replace("\\\n", " ").splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    if len(bases) < 2:
        yield "has one stage: build tools stay in the image"
    for base in bases:
        if not _TAG.fullmatch(base):
            yield f"begins from {base}, which is not pinned by version"
    last = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :]
    users = [line.split()[1] for line in last if line.startswith("USER ")]
    if not users or not re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", users[-1]):
        yield "ends as root, or as a user without a number"
    if not any(line.startswith("HEALTHCHECK ") for line in last):
        yield "has no HEALTHCHECK"


if __name__ == "__main__":
    lines = [f"{name}: {line}" for name in sys.argv[1:] for line in problems(Path(name))]
    print("\n".join(lines), file=sys.stderr, end="\n" if lines else "")
    sys.exit(bool(lines))
