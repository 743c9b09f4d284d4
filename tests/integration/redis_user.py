"""The Redis user that docs/redis.md tells an operator to make: the line is taken from there, so it is kept true."""

import re
from typing import Final

from tests.services.data import ROOT

PASSWORD: Final = "s3cret"


def acl_line(name: str, *, cluster: bool = False) -> list[str]:
    """The command, for a pipeline of that name."""
    manual = (ROOT / "docs" / "redis.md").read_text()
    (line,) = [line for line in manual.splitlines() if line.startswith("ACL SETUSER")]
    names = {"PASSWORD": PASSWORD, "{surat-speed:": f"{{{name}:", "{telemetry}": f"{{{name}}}"}
    for written, ours in names.items():
        assert written in line
        line = line.replace(written, ours)
    besides = re.search(r"needs besides: `([^`]*)`", manual)
    assert besides is not None
    return line.split() + (besides[1].split() if cluster else [])
