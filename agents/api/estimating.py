"""`hatcast.estimates`: estimates of all cells and slots, from releases."""

from pathlib import Path

from hatcast.agents.api.policy import settings_of
from hatcast.agents.api.reading import Source, stored_values
from hatcast.agents.api.records import Estimates, Releases
from hatcast.agents.batch.estimates import estimates as estimate_values
from hatcast.agents.config.settings import Settings
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
    values = releases.values if isinstance(releases, Releases) else stored_values(releases, "releases", Releases.TOPIC)
    return Estimates.of(estimate_values(values, settings_of(policy).policy))
