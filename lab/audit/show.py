"""Findings of an audit as a table, as Markdown and as JSON."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from hatcast.lab.audit.family import Finding
from hatcast.lab.audit.run import FALSE_ALARM, Audited

HEADINGS: Final = ("policy", "part", "claim", "loss of requests", "pairs", "bound", "margin", "verdict")


def table_of(found: Sequence[Audited], samples: int) -> Table:
    """Return a table: a row for each part of each policy."""
    table = Table(
        title=f"at most {samples:,} samples of a part; a false alarm at most once in {round(1 / FALSE_ALARM):,} runs",
        title_justify="left",
        caption="claim: epsilon (and delta) of the policy. loss of requests: the largest, over pairs of neighbours, of "
        "what is asked of the noise. bound: epsilon is at least this, by samples. margin: claim less bound.",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for at, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if at < 2 else "right", overflow="fold")
    for each in found:
        name = each.policy.name
        for finding in each.findings:
            table.add_row(name, *cells(finding), style="bold red" if finding.problem else None)
            name = ""
    return table


def markdown_of(found: Sequence[Audited]) -> str:
    """Return the table as Markdown."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join((f"`{name}`", *cells(finding))) + " |" for name, finding in rows(found)]
    return "\n".join(lines)


def rows(found: Sequence[Audited]) -> Iterator[tuple[str, Finding]]:
    """Yield (file, finding) of each part."""
    for each in found:
        for finding in each.findings:
            yield short(each.path), finding


def short(path: Path) -> str:
    """Return the last parts of a path: `examples/audit/levy.toml`."""
    return "/".join(path.parts[-3:] if path.parent.name == "audit" else path.parts[-2:])


def claim_text(finding: Finding) -> str:
    """Return the claim as text: `1`, or `1, 2e-07` with its delta."""
    return f"{finding.epsilon:g}" + (f", {finding.delta:g}" if finding.delta else "")


def cells(finding: Finding) -> tuple[str, ...]:
    """Return the texts of a row, without the policy."""
    numbers = (finding.loss, finding.bound, finding.margin)
    loss, bound, margin = ("-" if each is None else f"{each:.3f}" for each in numbers)
    verdict = "no violation found" if finding.problem is None else "violated"
    return finding.part, claim_text(finding), loss, f"{finding.pairs:,}", bound, margin, verdict


def as_json(found: Sequence[Audited], settings: dict[str, Any]) -> bytes:
    """Return all findings as JSON."""
    policies = [
        {
            "file": short(each.path),
            "policy": each.policy.name,
            "policy_id": each.policy.policy_id,
            "parts": [msgspec.to_builtins(finding) | {"margin": finding.margin} for finding in each.findings],
        }
        for each in found
    ]
    return msgspec.json.encode({"settings": settings, "policies": policies})
