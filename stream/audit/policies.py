"""The families of a policy."""

from hatcast.stream.audit.days import DayFamily
from hatcast.stream.audit.families import Family
from hatcast.stream.audit.hats import MeanFamily
from hatcast.stream.audit.queries import QueryFamily
from hatcast.stream.audit.reports import ReportFamily
from hatcast.stream.audit.running_sums import RunningSumFamily
from hatcast.stream.audit.tracker import TrackerFamily
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
