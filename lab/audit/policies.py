"""The families of a policy."""

from hatcast.lab.audit.days import DayFamily
from hatcast.lab.audit.families import Family
from hatcast.lab.audit.hats import MeanFamily
from hatcast.lab.audit.queries import QueryFamily
from hatcast.lab.audit.reports import ReportFamily
from hatcast.lab.audit.running_sums import RunningSumFamily
from hatcast.lab.audit.tracker import TrackerFamily
from hatcast.stream.policy.policy import Policy


def families_of(policy: Policy) -> list[Family]:
    """Return a family for each part of the policy that publishes something about users."""
    found: list[Family] = []
    if policy.continual is not None:
        found.append(RunningSumFamily(policy))
    elif policy.tracker is not None:
        found.append(TrackerFamily(policy))
    else:
        found.append(MeanFamily(policy))
    if policy.takes_reports:
        found.append(ReportFamily(policy))
    if policy.tracker is None and policy.value is None and not policy.values and policy.fine is None:
        found.append(DayFamily(policy))
    return found + [QueryFamily(policy, query) for query in policy.queries]
