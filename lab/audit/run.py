"""Audit of policies, part by part, in several processes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hatcast.agents.config.settings import load_settings
from hatcast.lab.audit.family import Effort, Finding
from hatcast.lab.audit.parts import Part, clustering_parts_of, parts_of
from hatcast.lab.audit.random_numbers import SeededNumbers
from hatcast.lab.processes import in_processes
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy

FALSE_ALARM: Final = 1e-6
"""probability that a run reports a claim that holds, at most"""


@dataclass(frozen=True, slots=True)
class Subject:
    """A policy file whose own parts are audited, or clusterings under it."""

    path: Path
    clusterings: bool = False

    def policy(self) -> Policy:
        """Return the file's policy. Raises HatcastError."""
        return load_settings(self.path).policy

    def parts(self) -> list[Part]:
        """Return the parts to audit. Raises HatcastError: the file cannot be read, or allows no clusterings."""
        policy = self.policy()
        if not self.clusterings:
            return parts_of(policy)
        found = clustering_parts_of(policy)
        if not found:
            raise HatcastError(
                f"{self.path}: its policy allows no clusterings; name one with relation replace and without horizons"
            )
        return found


@dataclass(frozen=True, slots=True)
class _Task:
    """A part of a subject, by its position."""

    subject: Subject
    number: int
    effort: Effort
    seed: int | None


@dataclass(frozen=True, slots=True)
class Audited:
    """A policy file with the findings of its parts."""

    path: Path
    policy: Policy
    findings: list[Finding]


def audit(
    subjects: Sequence[Subject], samples: int, pairs: int, progress: Callable[[int], None], seed: int | None = None
) -> list[Audited]:
    """Audit the policies of these files. Raises HatcastError for a file that cannot be read.

    seed   of neighbours and sides, never of noise; None: new ones each time
    progress   called with the number of further parts that are done
    """
    parts = [(subject, number) for subject in subjects for number in range(len(subject.parts()))]
    effort = Effort(samples, pairs, FALSE_ALARM / max(1, len(parts)))
    tasks = [_Task(subject, number, effort, seed) for subject, number in parts]
    done: dict[int, Finding] = {}
    for position, finding in in_processes(_audited, tasks):
        done[position] = finding
        progress(1)
    return [
        Audited(subject.path, subject.policy(), [done[at] for at, part in enumerate(parts) if part[0] == subject])
        for subject in subjects
    ]


def number_of_parts(subjects: Sequence[Subject]) -> int:
    """Return the number of parts that `audit` reports."""
    return sum(len(subject.parts()) for subject in subjects)


def _audited(task: _Task) -> Finding:
    from hatcast.stream.mechanisms.system import SystemNoise

    return task.subject.parts()[task.number].audit(task.effort, SeededNumbers(task.seed), SystemNoise())
