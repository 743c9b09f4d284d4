"""Family of a device's report: its own mean in one HAT, against everyone, the operator included."""

from fractions import Fraction
from typing import Final

from hatcast.lab.audit.families import Claim, Neighbours, RandomNumbers, Run
from hatcast.stream.hybrid import HybridParameters, report
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.proposals import JSON

_ENDS: Final = (Fraction(0), Fraction(1, 2), Fraction(1))


class ReportFamily:
    """Reports of a device under a hybrid policy. See `Family`."""

    name = "report"
    is_alone = False
    sample_divisor = 1

    def __init__(self, policy: Policy) -> None:
        """Args: `policy`, with devices."""
        if policy.hybrid is None:
            raise ValueError(f"{policy.name} takes no reports")
        self._parameters = HybridParameters.of(policy)
        self.claim = Claim.of_part(policy, policy.hybrid.local_epsilon, policy.most_hats)

    def worst(self) -> list[Neighbours]:
        """See `Family`: the ends of the range, and means beyond them, which the device clips."""
        beyond = Fraction(3, 2)
        half_step = self._parameters.grid.milli / (2 * self._parameters.upper_bound_milli)
        pairs = ((0, 1), (-beyond, beyond), (half_step, 1 - half_step))
        return [self._neighbours(Fraction(one), Fraction(other)) for one, other in pairs]

    def drawn(self, random: RandomNumbers) -> Neighbours:
        """See `Family`."""
        return self._neighbours(_share(random), _share(random))

    def varied(self, neighbours: Neighbours, random: RandomNumbers) -> Neighbours:
        """See `Family`: one of the two means."""
        one, other = neighbours.data
        return (
            self._neighbours(one, _share(random)) if random.random() < 0.5 else self._neighbours(_share(random), other)
        )

    def _neighbours(self, one: Fraction, other: Fraction) -> Neighbours:
        name = f"means of {float(one):.3g} and {float(other):.3g} of the range"
        return Neighbours(name, self._run(one), self._run(other), (one, other))

    def _run(self, share: Fraction) -> Run:
        parameters = self._parameters
        mean = share * parameters.upper_bound_milli

        def run(noise: Noise) -> list[bytes]:
            return [JSON.encode({"value": report(mean, parameters, noise)})]

        return run


def _share(random: RandomNumbers) -> Fraction:
    if random.random() < 0.5:
        return _ENDS[random.integers(0, len(_ENDS))]
    return Fraction(random.random()).limit_denominator(10**6)
