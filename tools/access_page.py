"""Write what `hatcast acls` prints for each role into docs/operations.md: python -m tools.access_page [--check]."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hatcast.agents.cli.acls import lines
from hatcast.agents.config.settings import Settings, load_settings, parse_settings
from hatcast.agents.kafka.grants import Role

_ROOT: Final = Path(__file__).parents[1]
PAGE: Final = _ROOT / "docs" / "operations.md"
_BEGIN: Final = "<!-- access, written by python -m tools.access_page -->\n"
_END: Final = "\n<!-- end -->"
_HYBRID: Final = (Role.DEVICE, Role.CLUSTER)  # under a policy with devices only
_DEVICES: Final = '\n### With devices\n\nThe same with `policy.estimator.name = "pwh"`: what differs.\n'


def render_page(page: str) -> str:
    """Return the page with what is printed today, and the same text around it."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"docs/operations.md has no place for the privileges: {_BEGIN}...{_END}")
    settings = load_settings(_ROOT / "hatcast.toml", {})
    printed = "".join(_block(settings, role) for role in Role if role not in _HYBRID)
    privacy = {"epsilon": 1.0, "max_hats_per_day": 5, "daily_limit": 5.0}
    policy = {
        "name": "surat-speed",
        "upper_bound": 65.0,
        "timezone": "Asia/Kolkata",
        "hours": [9, 21],
        "privacy": privacy,
    }
    hybrid = parse_settings({"policy": policy | {"estimator": {"name": "pwh"}}}, _ROOT, {})
    hybrids = "".join(_block(hybrid, role) for role in (Role.WORKER, *_HYBRID))
    return f"{before}{begin}{printed}{_DEVICES}{hybrids}{end}{after}"


def _block(settings: Settings, role: Role) -> str:
    text = "".join(f"{line}\n" for line in _wrapped(settings, role))
    return f"\n`hatcast acls {role}`:\n\n```text\n{text}```\n"


def _wrapped(settings: Settings, role: Role) -> Iterator[str]:
    """Yield the commands without what they all begin with, so that they can be read."""
    for line in lines(settings, role, f"hatcast-{role}"):
        yield line.replace(
            f" --bootstrap-server {settings.kafka.bootstrap_servers} --command-config admin.properties", " ..."
        )


def main() -> None:
    """Write the page; with `--check` exit 1 if it differs."""
    page = PAGE.read_text()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(render_page(page))
    elif page != render_page(page):
        sys.exit("docs/operations.md differs from what `hatcast acls` prints: run python -m tools.access_page")


if __name__ == "__main__":
    main()
