"""`python -m tools.schemas [--check]`: writes schemas/ from the types, or says whether files and types agree."""

import sys

from tools.schemas.asyncapi import DOCUMENT, document_text
from tools.schemas.json_schema import FOLDER, SUFFIX, text_of
from tools.schemas.records import RECORDS


def main() -> None:
    """Write the files; with `--check` exit 1 if one differs, or if there is a schema of no record."""
    wanted = {f"{name}{SUFFIX}": text_of(name) for name in RECORDS} | {DOCUMENT: document_text()}
    if "--check" not in sys.argv[1:]:
        FOLDER.mkdir(exist_ok=True)
        for name, text in wanted.items():
            (FOLDER / name).write_bytes(text)
        return
    there = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.is_file()}
    stale = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
    if stale:
        sys.exit(f"schemas/ and the types differ ({', '.join(stale)}): run python -m tools.schemas")


if __name__ == "__main__":
    main()
