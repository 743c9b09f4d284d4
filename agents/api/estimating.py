"""`hatcast.estimates` and `hatcast.running_means`: what follows from releases, at no cost."""

from collections.abc import Iterable
from pathlib import Path

from hatcast.agents.api.policy import settings_of
from hatcast.agents.api.reading import Source, stored_values
from hatcast.agents.api.records import Estimates, Releases, RunningMeans
from hatcast.agents.batch.estimates import estimates as estimate_values
from hatcast.agents.batch.estimates import running_means as running_values
from hatcast.agents.config.settings import Settings
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy


def estimates(releases: Releases | Source, policy: str | Path | Policy | Settings) -> Estimates:
    """Return the estimates of all cells and slots that follow from a policy's releases: those of `hats.estimates`.

    They cost no budget, since they are a function of what is published (docs/specification/tracker.md). Give the
    releases of all days together: a day's estimates use the days before.

    Args:
        releases: of `batch` or `read`; or a source of `read`, such as the ledger with all runs.
        policy: the policy that made them; records of other policies are left out.

    Raises:
        HatcastError: as `read`.
    """
    return Estimates.of(estimate_values(_values(releases), settings_of(policy).policy))


def running_means(releases: Releases | Source, policy: str | Path | Policy | Settings) -> RunningMeans:
    """Return the running means of all cells and slots that follow from a policy's releases: those of `hats.running`.

    They cost no budget, since they are a function of what is published (docs/running.md). Give the releases of all days
    together: a window can begin days before.

    Args:
        releases: of `batch` or `read`; or a source of `read`, such as the ledger with all runs.
        policy: the policy that made them, with its `running`; records of other policies are left out.

    Raises:
        HatcastError: the policy has no running means; or as `read`.
    """
    checked = settings_of(policy).policy
    if not checked.running:
        raise HatcastError('policy: has no running means; give it running=[{"name": "today", "window": "today"}]')
    return RunningMeans.of(running_values(_values(releases), checked))


def _values(releases: Releases | Source) -> Iterable[bytes]:
    return releases.values if isinstance(releases, Releases) else stored_values(releases, "releases", Releases.TOPIC)
