"""Audit of policies, part by part, in several processes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hatcast.agents.config.settings import load_settings
from hatcast.agents.research.audit.family import Effort, Finding, audit_family
from hatcast.agents.research.audit.random_numbers import SeededNumbers
from hatcast.agents.research.processes import in_processes
from hatcast.stream.audit.laws import COUNTS, ROUNDING, EstimateOf, has_selections, losses_of, small
from hatcast.stream.audit.policies import families_of
from hatcast.stream.audit.transcript import Leak
from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.policy.policy import Policy

FALSE_ALARM: Final = 1e-6
"""probability that a run reports a claim that holds, at most"""
SELECTION: Final = "selection"


@dataclass(frozen=True, slots=True)
class _Task:
    """A part of a policy file. number: of the family; -1: the exact laws of its selections"""

    path: Path
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
    paths: Sequence[Path], samples: int, pairs: int, progress: Callable[[int], None], seed: int | None = None
) -> list[Audited]:
    """Audit the policies of these files. Raises HatcastError for a file that cannot be read.

    seed   of neighbours and sides, never of noise; None: new ones each time
    progress   called with the number of further parts that are done
    """
    policies = [load_settings(path).policy for path in paths]
    parts = [
        (path, number)
        for path, policy in zip(paths, policies, strict=True)
        for number in range(-1 if has_selections(policy) else 0, len(families_of(policy)))
    ]
    effort = Effort(samples, pairs, FALSE_ALARM / max(1, len(parts)))
    tasks = [_Task(path, number, effort, seed) for path, number in parts]
    done: dict[int, Finding] = {}
    for position, finding in in_processes(_audited, tasks):
        done[position] = finding
        progress(1)
    return [
        Audited(path, policy, [done[at] for at, part in enumerate(parts) if part[0] == path])
        for path, policy in zip(paths, policies, strict=True)
    ]


def number_of_parts(paths: Sequence[Path]) -> int:
    """Return the number of parts that `audit` reports."""
    policies = [load_settings(path).policy for path in paths]
    return sum(len(families_of(policy)) + has_selections(policy) for policy in policies)


def _audited(task: _Task) -> Finding:
    from hatcast.stream.mechanisms.system import SystemNoise

    policy = load_settings(task.path).policy
    if task.number < 0:
        return audit_selection(policy, ESTIMATORS[policy.estimator].estimate)
    return audit_family(families_of(policy)[task.number], task.effort, SeededNumbers(task.seed), SystemNoise())


def audit_selection(policy: Policy, estimate: EstimateOf) -> Finding:
    """Compare the exact laws of a policy's selections, on all neighbours of small inputs.

    estimate   the code under audit
    """
    shares = ESTIMATORS[policy.estimator].shares
    whole, pairs, problem = 0.0, 0, None
    for counts in COUNTS:
        parameters = small(policy, counts)
        try:
            found = losses_of(parameters, counts, estimate)
        except Leak as leak:
            problem = leak.reason
            break
        pairs += found.pairs
        whole = max(whole, float(found.whole))
        allowed = parameters.epsilon * float(1 - shares["noise"])
        if float(found.selected) > allowed * (1 + float(ROUNDING)) + float(ROUNDING):
            problem = f"a selection loses {float(found.selected):.6g}, above its share {allowed:g}"
    if problem is None and whole > policy.epsilon * (1 + 1e-12):
        problem = f"a release loses {whole:.6g}, above the claim {policy.epsilon:g}"
    return Finding(
        part=SELECTION,
        epsilon=policy.epsilon,
        delta=0.0,
        neighbours="all neighbours of small HATs, exactly",
        pairs=pairs,
        loss=whole,
        samples=0,
        bound=None,
        problem=problem,
    )
