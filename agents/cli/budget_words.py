"""Parts of `hatcast budget --explain` that every kind of policy uses: paragraphs, and epsilon in words."""

import math
from dataclasses import dataclass

from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import NANO


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Paragraph with a heading; `sums` are lines of (item, formula, epsilon)."""

    heading: str
    text: str = ""
    sums: tuple[tuple[str, str, str], ...] = ()


def factor(epsilon: float) -> str:
    """Return e^epsilon as readable text."""
    if epsilon > math.log(1e6):
        return f"about 10^{epsilon / math.log(10):.0f}"
    return f"{math.exp(epsilon):.3g}" if epsilon < math.log(1000) else f"{math.exp(epsilon):,.0f}"


def certainty(epsilon: float) -> str:
    """Return the largest posterior probability of a guess with prior 1/2, in per cent, rounded up."""
    share = math.ceil(1e5 / (1 + math.exp(-epsilon))) / 1000
    return f"{share:.4g} %" if share < 99 else f"{share:g} %"


def hidden_values(policy: Policy, bus: str) -> str:
    """Return the values that relation replace hides: the speed, and others of the policy by name."""
    if policy.value_name is not None:
        return f"the {policy.value_name} in each reading of {bus}"
    others = [value.name for value in policy.released_values[1:]]
    return f"how fast {bus} went" + "".join(f" and its {name}" for name in others)


def eps(nano: int) -> str:
    """Return a charge (1e-9) as text."""
    return f"{nano / NANO:g}"
