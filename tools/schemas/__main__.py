"""`python -m tools.schemas [--check]`: write schemas/ from the types, or check the files."""

import sys
from typing import Final

from hatcast.agents.map.openapi import document_text as openapi_text
from tools.schemas.asyncapi import DOCUMENT, document_text
from tools.schemas.json_schema import FOLDER, SUFFIX, schema_text
from tools.schemas.records import RECORDS

OPENAPI: Final = "openapi.json"


def main() -> None:
    """Write the files; with `--check` exit 1 if one differs, or if a file belongs to no record."""
    expected = {f"{name}{SUFFIX}": schema_text(name) for name in RECORDS} | {
        DOCUMENT: document_text(),
        OPENAPI: openapi_text(),
    }
    if "--check" not in sys.argv[1:]:
        FOLDER.mkdir(exist_ok=True)
        for name, text in expected.items():
            (FOLDER / name).write_bytes(text)
        return
    existing = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.is_file()}
    stale = sorted(name for name in expected.keys() | existing.keys() if expected.get(name) != existing.get(name))
    if stale:
        sys.exit(f"schemas/ and the types differ ({', '.join(stale)}): run python -m tools.schemas")


if __name__ == "__main__":
    main()
