"""The parts of a policy that an audit reports, each with its claim and the function that audits it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hatcast.lab.audit.clusterings import clusterings_of
from hatcast.lab.audit.exact import LISTS, SELECTION, audit_lists, audit_selection
from hatcast.lab.audit.families import Claim, Family
from hatcast.lab.audit.family import Effort, Finding, audit_family
from hatcast.lab.audit.laws import has_selections
from hatcast.lab.audit.lists import ListFamily
from hatcast.lab.audit.policies import families_of
from hatcast.lab.audit.random_numbers import SeededNumbers
from hatcast.lab.survey.run import select_from
from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a policy. audit: draws from the noise that it gets"""

    name: str
    claim: Claim
    audit: Callable[[Effort, SeededNumbers, Noise], Finding]


def parts_of(policy: Policy) -> list[Part]:
    """Return the parts that a policy publishes by itself, in the order of the report."""
    found = []
    if has_selections(policy):
        exact = partial(audit_selection, policy, ESTIMATORS[policy.estimator].estimate)
        found.append(Part(SELECTION, Claim(policy.epsilon), lambda _effort, _random, _noise: exact()))
    families: list[Family] = families_of(policy)
    cost = policy.selection_cost
    if cost is not None:
        lists = partial(audit_lists, policy, cost, select_from)
        found.append(Part(LISTS, Claim(cost.epsilon), lambda _effort, _random, _noise: lists()))
        families.append(ListFamily(policy))
    return found + [_part(family) for family in families]


def clustering_parts_of(policy: Policy) -> list[Part]:
    """Return the parts of `hatcast cluster` under a policy; none if it allows no clusterings."""
    return [_part(family) for family in clusterings_of(policy)]


def _part(family: Family) -> Part:
    def audit(effort: Effort, random: SeededNumbers, noise: Noise) -> Finding:
        return audit_family(family, effort, random, noise)

    return Part(family.name, family.claim, audit)
