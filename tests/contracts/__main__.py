"""`python -m tests.contracts [--write | --freeze VERSION]`: check the contracts, or write this version's goldens.

`--freeze` is for a release: from then on `scripts/check` holds that version's goldens to what they are.
"""

import json
import shutil
import sys
from itertools import chain

from tests.contracts.check import (
    FROZEN,
    coverage_problems,
    digest,
    document_problems,
    frozen_problems,
    golden_problems,
    header_problems,
    schema_problems,
)
from tools.schemas import FOLDER, RECORDS
from tools.schemas.asyncapi import version
from tools.schemas.golden import FOLDER_NAME


def write() -> None:
    """Write the goldens of this version anew. The frozen ones of others stay."""
    from tests.contracts.goldens import goldens

    folder = FOLDER / FOLDER_NAME / version()
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in goldens().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)


def freeze(released: str) -> None:
    """Note what the goldens of a released version are."""
    path = FOLDER / FOLDER_NAME / FROZEN
    frozen = json.loads(path.read_bytes()) | {released: digest(FOLDER, released)}
    path.write_text(json.dumps(frozen, indent=2, sort_keys=True) + "\n")


def main() -> None:
    """Exit 1 with a line for each problem."""
    match sys.argv[1:]:
        case ["--write"]:
            write()
        case ["--freeze", released]:
            freeze(released)
        case []:
            today, versions = version(), sorted(p.name for p in (FOLDER / FOLDER_NAME).iterdir() if p.is_dir())
            problems = [
                *schema_problems(FOLDER, RECORDS),
                *frozen_problems(FOLDER, today),
                *chain.from_iterable(golden_problems(FOLDER, each, RECORDS) for each in versions),
                *header_problems(FOLDER, today, RECORDS),
                *coverage_problems(FOLDER, today, RECORDS),
                *document_problems(FOLDER, RECORDS),
            ]
            if problems:
                sys.exit("\n".join(problems))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
