"""The libraries of the page are those of npm, byte for byte, with their licences."""

import re
from hashlib import sha256
from pathlib import Path

VENDOR = Path(__file__).parents[2] / "agents" / "map" / "static" / "vendor"


def test_every_library_is_listed_unchanged_and_has_its_licence() -> None:
    rows = re.findall(r"\| `(\S+)` \| `\S+` \| \S+ \| `([0-9a-f]{64})` \|", (VENDOR / "README.md").read_text())
    files = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.suffix in (".js", ".css")}
    assert {name for name, _ in rows} == files
    for name, digest in rows:
        assert sha256((VENDOR / name).read_bytes()).hexdigest() == digest
        assert (VENDOR / name).with_name("LICENSE").stat().st_size > 1_000
