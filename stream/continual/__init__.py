"""Continual mechanisms: private running sums of one cell over a horizon, one file for each kind.

To add one: a file here, a name below, a section in docs/specification/continual.md. Law tests and benchmarks read this
table.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from hatcast.stream.continual._interface import Advanced, BadState, Entries, Mechanism, Setting, Step
from hatcast.stream.continual.blt import Blt
from hatcast.stream.continual.independent import Independent
from hatcast.stream.continual.kary import kary
from hatcast.stream.continual.toeplitz import Toeplitz
from hatcast.stream.continual.tree import tree
from hatcast.stream.continual.withhold_release import WithholdRelease
from hatcast.stream.policy.continual_keys import ContinualKind

KINDS: Final[Mapping[ContinualKind, Callable[[Setting], Mechanism]]] = MappingProxyType(
    {
        ContinualKind.LAPLACE: Independent,
        ContinualKind.GAUSSIAN: Independent,
        ContinualKind.TREE: tree,
        ContinualKind.KARY: kary,
        ContinualKind.TOEPLITZ: Toeplitz,
        ContinualKind.BLT: Blt,
        ContinualKind.WITHHOLD_RELEASE: WithholdRelease,
    }
)

__all__ = ["KINDS", "Advanced", "BadState", "Entries", "Mechanism", "Setting", "Step"]
