"""`python -m agents.schemas [--check]`: writes schemas/*.schema.json from the types, or checks that they agree."""

import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from agents.dead_letters import DeadLetter
from stream.contracts import BudgetRecord, QueryRecord, ReleaseRecord, ReportRecord, TelemetryRecord

FOLDER: Final = Path(__file__).parent.parent / "schemas"
SCHEMAS: Final[dict[str, type[msgspec.Struct]]] = {
    "telemetry": TelemetryRecord,
    "release": ReleaseRecord,
    "query": QueryRecord,
    "budget": BudgetRecord,
    "dead-letter": DeadLetter,
    "report": ReportRecord,
}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a record."""
    type_ = SCHEMAS[name]
    (schema,), definitions = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        **schema,
        "$defs": definitions,
    }


def text_of(name: str) -> bytes:
    """The schema file's content."""
    return msgspec.json.format(msgspec.json.encode(schema_of(name)), indent=2) + b"\n"


def main() -> None:
    """Write the files; with `--check` exit 1 if one differs."""
    check = "--check" in sys.argv[1:]
    FOLDER.mkdir(exist_ok=True)
    stale = []
    for name in SCHEMAS:
        path = FOLDER / f"{name}.schema.json"
        if check and (not path.exists() or path.read_bytes() != text_of(name)):
            stale.append(path.name)
        elif not check:
            path.write_bytes(text_of(name))
    if stale:
        sys.exit(f"schemas/ and the types differ ({', '.join(stale)}): run python -m agents.schemas")


if __name__ == "__main__":
    main()
