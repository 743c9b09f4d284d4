"""Check a compose file: against the Compose Specification's own schema, and that what it mounts and builds is there.

``compose-spec.json`` is ``schema/compose-spec.json`` of github.com/compose-spec/compose-go v2.16.2 (Apache-2.0).
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator


def problems(file: Path) -> list[str]:
    """One line for each thing that ``docker compose up`` would refuse."""
    schema = json.loads(Path(__file__).with_name("compose-spec.json").read_bytes())
    parsed: dict[str, Any] = yaml.safe_load(file.read_text())
    found = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(parsed)]
    if found:
        return found
    services: dict[str, Any] = parsed["services"]
    volumes = parsed.get("volumes") or {}
    for name, service in services.items():
        others = [each for each in service.get("depends_on", ()) if each not in services]
        found += [f"{name} depends on {each}, which is no service" for each in others]
        mounted = [each.split(":")[0] for each in service.get("volumes", ()) if isinstance(each, str)]
        named = [each for each in mounted if each[0] not in "./~$"]
        found += [f"{name} mounts {each}, which is no volume" for each in named if each not in volumes]
        build = service.get("build")
        if build is not None and not (file.parent / build / "Dockerfile").is_file():
            found.append(f"{name} is built from {build}, where there is no Dockerfile")
    return found


if __name__ == "__main__":
    lines = [f"{name}: {line}" for name in sys.argv[1:] for line in problems(Path(name))]
    print("\n".join(lines), file=sys.stderr, end="\n" if lines else "")
    sys.exit(bool(lines))
