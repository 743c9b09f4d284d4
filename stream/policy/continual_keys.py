"""`[policy.continual]`: keys of a policy that releases running sums and means over a horizon."""

from enum import StrEnum


class ContinualKind(StrEnum):
    """Mechanism of a running sum.

    LAPLACE and GAUSSIAN add independent noise to each slot; the others add correlated noise.
    """

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"
    TREE = "tree"
    KARY = "kary"
    TOEPLITZ = "toeplitz"
    BLT = "blt"
    WITHHOLD_RELEASE = "withhold_release"
