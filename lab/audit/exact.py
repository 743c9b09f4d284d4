"""Findings about exact laws: of an estimator's selections, and of private lists."""

from typing import Final

from hatcast.lab.audit.family import Finding
from hatcast.lab.audit.laws import COUNTS, ROUNDING, EstimateOf, losses_of, small
from hatcast.lab.audit.list_laws import SelectFrom, losses_of_lists
from hatcast.lab.audit.transcript import Leak
from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.policy.cells_file import SelectionCost
from hatcast.stream.policy.policy import Policy

SELECTION: Final = "selection"
LISTS: Final = "private list, exact"
_ROUNDING: Final = 1e-12  # relative; of sums of floats


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
    if problem is None and whole > policy.epsilon * (1 + _ROUNDING):
        problem = f"a release loses {whole:.6g}, above the claim {policy.epsilon:g}"
    return _finding(SELECTION, policy.epsilon, "small HATs", pairs, whole, problem)


def audit_lists(policy: Policy, cost: SelectionCost, select_from: SelectFrom) -> Finding:
    """Compare the exact laws of private lists, on all neighbours of small counts.

    select_from   the code under audit
    """
    loss: float | None = None
    pairs, problem = 0, None
    try:
        loss, pairs = losses_of_lists(policy.max_hats_per_day, cost.epsilon, select_from)
    except Leak as leak:
        problem = leak.reason
    if loss is not None and loss > cost.epsilon * (1 + _ROUNDING):
        problem = f"a list loses {loss:.6g}, above the claim {cost.epsilon:g}"
    return _finding(LISTS, cost.epsilon, "small counts", pairs, loss, problem)


def _finding(part: str, epsilon: float, inputs: str, pairs: int, loss: float | None, problem: str | None) -> Finding:
    """Return the finding of exact laws: no samples were drawn, so there is no bound by them."""
    return Finding(
        part=part,
        epsilon=epsilon,
        delta=0.0,
        neighbours=f"all neighbours of {inputs}, exactly",
        pairs=pairs,
        loss=loss,
        samples=0,
        bound=None,
        problem=problem,
    )
