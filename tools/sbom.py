"""Check a software bill of materials: the schema of CycloneDX 1.5, and a hash of every file of every component.

`scripts/sbom` makes one from `uv.lock` and checks it; the image has its own, made by the same command.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft7Validator
from referencing import Registry, Resource

_SCHEMAS: Final = ("bom-1.5", "spdx", "jsf-0.82")


def findings(bom: dict[str, Any]) -> list[str]:
    """Return what is wrong with a bill, a line each: against the schema, or a component without package or hash."""
    found = [f"{error.json_path}: {error.message[:200]}" for error in _validator().iter_errors(bom)]
    components = bom.get("components", [])
    if not components:
        found.append("it has no components")
    for component in components:
        name = component.get("name")
        if not str(component.get("purl", "")).startswith("pkg:pypi/"):
            found.append(f"{name}: it is not a package of PyPI")
        references = component.get("externalReferences", [])
        hashes = [each["alg"] for reference in references for each in reference.get("hashes", [])]
        if not references or hashes != ["SHA-256"] * len(references):
            found.append(f"{name}: a file has no SHA-256")
    return found


def _validator() -> Draft7Validator:
    """Return the validator of CycloneDX 1.5. Formats are not checked: an IRI takes a second, and there are hundreds."""
    folder = files("cyclonedx.schema") / "_res"
    schemas = [json.loads((folder / f"{name}.SNAPSHOT.schema.json").read_text()) for name in _SCHEMAS]
    return Draft7Validator(schemas[0], registry=Registry().with_resources(_by_id(schemas)))


def _by_id(schemas: list[dict[str, Any]]) -> list[tuple[str, Resource[Any]]]:
    return [(schema["$id"], Resource.from_contents(schema)) for schema in schemas]


def main() -> None:
    """Check the file that is named; exit 1 with a line for each finding."""
    bom = json.loads(Path(sys.argv[1]).read_text())
    if found := findings(bom):
        sys.exit("\n".join(found))
    print(f"sbom: {len(bom['components'])} packages in {sys.argv[1]}")  # noqa: T201 - a command


if __name__ == "__main__":
    main()
