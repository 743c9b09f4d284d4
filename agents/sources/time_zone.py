"""Time zone of derived speeds: that of the registered policies.    [docs/proofs.md, Derived speeds]"""

from aiokafka.errors import UnknownTopicOrPartitionError

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.registry import read_registry
from hatcast.stream.errors import HatcastError


def check_registered_timezone(settings: Settings) -> None:
    """Check that the policies of this telemetry have the configuration's time zone. Blocks.

    Else a speed around their midnight would depend on two of their days.
    Raises HatcastError, and as `read_registry` does. Before the first start of a worker there is nothing to check.
    """
    try:
        policies = read_registry(settings, settings.topics.registry).policies.values()
    except UnknownTopicOrPartitionError:
        return
    for each in policies:
        if each.timezone != settings.policy.timezone:
            raise HatcastError(
                f"policy.timezone is {settings.policy.timezone!r}, policy {each.policy!r} of the same telemetry was"
                f" started with {each.timezone!r}, and speeds are derived within its days: use {each.timezone!r}"
            )
