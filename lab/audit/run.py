"""Audit of policies, part by part, in several processes; its findings as a table, as Markdown and as JSON."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

import msgspec
from rich.table import Column, Table

from hatcast.agents.cli.report import Report
from hatcast.agents.config.settings import load_settings
from hatcast.agents.tables.terminal import table
from hatcast.lab.audit.days import DayFamily, RunningSumFamily
from hatcast.lab.audit.devices import ReportFamily, clusterings_of
from hatcast.lab.audit.family import AuditFinding, Effort, audit_family
from hatcast.lab.audit.hats import Claim, Family, MeanFamily, RandomNumbers
from hatcast.lab.audit.laws import LISTS, SELECTION, audit_lists, audit_selection, has_selections
from hatcast.lab.audit.lists import ListFamily, QueryFamily
from hatcast.lab.audit.tracker import TrackerFamily
from hatcast.lab.processes import in_processes
from hatcast.lab.survey.run import select_from
from hatcast.stream.errors import HatcastError
from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import ContinualKeys, HybridKeys, MeansKeys, Policy, TrackerKeys, ValuesKeys

HEADINGS: Final = ("policy", "part", "claim", "loss of requests", "pairs", "bound", "margin", "verdict")
FALSE_ALARM: Final = 1e-6  # probability that a run reports a claim that holds, at most


def families_of(policy: Policy) -> list[Family]:
    """Return a family for each part of the policy that publishes something about users."""
    found: list[Family] = []
    match policy.method:
        case ContinualKeys():
            found.append(RunningSumFamily(policy))
        case TrackerKeys():
            found.append(TrackerFamily(policy))
        case MeansKeys() | HybridKeys():
            found.append(MeanFamily(policy))
    if policy.takes_reports:
        found.append(ReportFamily(policy))
    is_folded_alone = not isinstance(policy.method, TrackerKeys | ValuesKeys)
    if is_folded_alone and policy.value is None and policy.fine is None:
        found.append(DayFamily(policy))
    return found + [QueryFamily(policy, query) for query in policy.queries]


@dataclass(frozen=True, slots=True)
class AuditPart:
    """A part of a policy. audit: draws from the noise that it gets"""

    name: str
    claim: Claim
    audit: Callable[[Effort, RandomNumbers, Noise], AuditFinding]

    @classmethod
    def of(cls, family: Family) -> Self:
        """Return the part whose neighbours are those of a family."""
        return cls(family.name, family.claim, partial(audit_family, family))


def parts_of(policy: Policy) -> list[AuditPart]:
    """Return the parts that a policy publishes by itself, in the order of the report."""
    found = []
    if has_selections(policy):
        estimate = ESTIMATORS[policy.estimator].estimate
        found.append(AuditPart(SELECTION, Claim(policy.epsilon), lambda *_: audit_selection(policy, estimate)))
    families: list[Family] = families_of(policy)
    cost = policy.selection_cost
    if cost is not None:
        found.append(AuditPart(LISTS, Claim(cost.epsilon), lambda *_: audit_lists(policy, cost, select_from)))
        families.append(ListFamily(policy))
    return found + list(map(AuditPart.of, families))


@dataclass(frozen=True, slots=True)
class Subject:
    """A policy file whose own parts are audited, or clusterings under it."""

    path: Path
    clusterings: bool = False

    def policy(self) -> Policy:
        """Return the file's policy. Raises HatcastError."""
        return load_settings(self.path).policy

    def parts(self) -> list[AuditPart]:
        """Return the parts to audit. Raises HatcastError: the file cannot be read, or allows no clusterings."""
        policy = self.policy()
        if not self.clusterings:
            return parts_of(policy)
        found = list(map(AuditPart.of, clusterings_of(policy)))
        if not found:
            raise HatcastError(
                f"{self.path}: its policy allows no clusterings; name one with relation replace and without horizons"
            )
        return found


@dataclass(frozen=True, slots=True)
class Audited:
    """A policy file with the findings of its parts."""

    path: Path
    policy: Policy
    findings: list[AuditFinding]


def audit(
    subjects: Sequence[Subject], samples: int, pairs: int, progress: Callable[[int], None], seed: int | None = None
) -> list[Audited]:
    """Audit the policies of these files. Raises HatcastError for a file that cannot be read.

    seed   of neighbours and sides, never of noise; None: new ones each time
    progress   called with the number of further parts that are done
    """
    parts = [(subject, number) for subject in subjects for number in range(len(subject.parts()))]
    effort = Effort(samples, pairs, FALSE_ALARM / max(1, len(parts)))
    tasks = [partial(_audited, subject, number, effort, seed) for subject, number in parts]
    done = dict[int, AuditFinding]()
    for position, finding in in_processes(tasks):
        done[position] = finding
        progress(1)
    return [
        Audited(subject.path, subject.policy(), [done[at] for at, part in enumerate(parts) if part[0] == subject])
        for subject in subjects
    ]


def _audited(subject: Subject, number: int, effort: Effort, seed: int | None) -> AuditFinding:
    from hatcast.stream.mechanisms.system import SystemNoise

    return subject.parts()[number].audit(effort, RandomNumbers(seed), SystemNoise())


def report_of(found: Sequence[Audited], samples: int, pairs: int) -> Report:
    """Return all findings, and a table of them."""
    policies = [
        {
            "file": short(each.path),
            "policy": each.policy.name,
            "policy_id": each.policy.policy_id,
            "parts": [msgspec.to_builtins(finding) | {"margin": finding.margin} for finding in each.findings],
        }
        for each in found
    ]
    settings = {"samples": samples, "pairs": pairs, "false_alarm": FALSE_ALARM}
    return Report(shown=[_table(found, samples)], figures={"policies": policies}, settings=settings)


def _table(found: Sequence[Audited], samples: int) -> Table:
    def rows() -> Iterator[tuple[str, ...]]:
        for each in found:
            for at, finding in enumerate(each.findings):
                texts = ("" if at else each.policy.name, *_cells(finding))
                yield texts if finding.problem is None else tuple(f"[bold red]{text}[/bold red]" for text in texts)

    return table(
        f"at most {samples:,} samples of a part; a false alarm at most once in {round(1 / FALSE_ALARM):,} runs",
        "claim: epsilon (and delta) of the policy. loss of requests: the largest, over pairs of neighbours, of "
        "what is asked of the noise. bound: epsilon is at least this, by samples. margin: claim less bound.",
        [Column(each, justify="left" if at < 2 else "right", overflow="fold") for at, each in enumerate(HEADINGS)],
        rows(),
    )


def markdown_of(found: Sequence[Audited]) -> str:
    """Return the table as Markdown."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join((f"`{name}`", *_cells(finding))) + " |" for name, finding in findings_of(found)]
    return "\n".join(lines)


def findings_of(found: Sequence[Audited]) -> Iterator[tuple[str, AuditFinding]]:
    """Yield (file, finding) of each part."""
    yield from ((short(each.path), finding) for each in found for finding in each.findings)


def short(path: Path) -> str:
    """Return the last parts of a path: `examples/audit/levy.toml`."""
    return "/".join(path.parts[-3:] if path.parent.name == "audit" else path.parts[-2:])


def _cells(finding: AuditFinding) -> tuple[str, ...]:
    """Return the texts of a row, without the policy."""
    claim = f"{finding.epsilon:g}" + (f", {finding.delta:g}" if finding.delta else "")
    numbers = (finding.loss, finding.bound, finding.margin)
    loss, bound, margin = ("-" if each is None else f"{each:.3f}" for each in numbers)
    verdict = "no violation found" if finding.problem is None else "violated"
    return finding.part, claim, loss, f"{finding.pairs:,}", bound, margin, verdict
