"""What runs came to: one summary for people, one for programs, and the table in docs/reliability.md."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.services.data import ROOT

PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN: Final = "<!-- the last long run: written by scripts/faults --keep -->"
BEGIN_OF_KIND: Final = "<!-- the last long run of kind {0}: written by scripts/faults --kind {0} --keep -->"
END: Final = "<!-- end of the last long run -->"

# What has to happen so often in long runs, by the beginnings of the names in a tally.
WANTED: Final = {
    "worker killed": ("worker killed",),
    "Redis rolled back or flushed": ("Redis rolled back", "Redis flushed"),
    "zombie": ("zombie",),
    "Kafka restarted": ("Kafka restarted",),
}


@dataclass
class Report:
    """What a run did and found."""

    kind: str
    seed: int
    readings: int = 0
    seconds: float = 0.0
    releases: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    answers: int = 0


@dataclass(frozen=True)
class Summary:
    """Runs together."""

    reports: Sequence[Report]

    @property
    def faults(self) -> Counter[str]:
        """What was done, by its name."""
        return sum((report.faults for report in self.reports), Counter())

    @property
    def violations(self) -> list[str]:
        """What was found, with the run's seed."""
        return [f"seed {report.seed}: {found}" for report in self.reports for found in report.violations]

    def wanted(self) -> dict[str, int]:
        """The faults that a long run has to have many of."""
        faults = self.faults
        return {name: sum(faults[each] for each in parts) for name, parts in WANTED.items()}

    def as_json(self) -> dict[str, Any]:
        """For programs: flat, but for the faults by kind and the violations."""
        return {
            "seeds": [report.seed for report in self.reports],
            "runs": len(self.reports),
            "minutes": round(sum(report.seconds for report in self.reports) / 60, 1),
            "readings": sum(report.readings for report in self.reports),
            "releases": sum(report.releases for report in self.reports),
            "answers": sum(report.answers for report in self.reports),
            "faults": dict(sorted(self.faults.items())),
            "violations": self.violations,
        }

    def as_markdown(self, date: str) -> str:
        """For docs/reliability.md."""
        told = self.as_json()
        seeds = [report.seed for report in self.reports]
        rows = [f"| {name} | {times} |" for name, times in sorted(self.faults.items()) if "at step" not in name]
        steps = sorted((name.removeprefix("at step: "), n) for name, n in self.faults.items() if "at step" in name)
        head = (
            f"{date}: {told['runs']} runs, seeds {min(seeds)} to {max(seeds)}, {told['minutes']} minutes,"
            f" {told['readings']:,} readings, {told['releases']:,} releases, {told['answers']:,} answers to queries,"
            f" **{len(told['violations'])} violations**."
        )
        met = "Met by workers at the end of a step: " + ", ".join(f"{name} {times}" for name, times in steps) + "."
        return "\n".join([head, "", "| fault | times |", "|---|---:|", *rows, "", met])


def keep(summary: Summary, date: str, page: Path = PAGE, kind: str | None = None) -> None:
    """Write a summary between the marks of the page, in place of the last one. kind: of all its runs."""
    begin, place = _place(kind)
    text = page.read_text(encoding="utf-8")
    if not place.search(text):
        raise ValueError(f"{page} has no place for a summary")
    page.write_text(place.sub(lambda _: f"{begin}\n{summary.as_markdown(date)}\n{END}", text), encoding="utf-8")


def has_place(page: Path = PAGE, kind: str | None = None) -> bool:
    """Whether `keep` could write there."""
    return _place(kind)[1].search(page.read_text(encoding="utf-8")) is not None


def _place(kind: str | None) -> tuple[str, re.Pattern[str]]:
    """The first mark, and what is found from it to the last one."""
    begin = BEGIN if kind is None else BEGIN_OF_KIND.format(kind)
    return begin, re.compile(re.escape(begin) + ".*?" + re.escape(END), re.DOTALL)
