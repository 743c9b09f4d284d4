"""Grant and revoke ACLs of Kafka, and wait until the broker decides by them.

Kafka answers once the controller has stored a change; the broker's authorizer learns of it a moment later.
"""

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import admin as admin_module

from tests.services.lifecycle import wait_until

admin_api: Any = admin_module  # its types do not name all of it
_SECONDS: Final = 30
_EVERY: Final = admin_api.AclBindingFilter(
    admin_api.ResourceType.ANY,
    None,
    admin_api.ResourcePatternType.ANY,
    None,
    None,
    admin_api.AclOperation.ANY,
    admin_api.AclPermissionType.ANY,
)


def grant(admin: Any, bindings: Sequence[Any]) -> None:
    """Returns when all are in force."""
    for done in admin.create_acls(bindings).values():
        done.result(_SECONDS)
    wait_until(lambda: set(bindings) <= _in_force(admin), None, _SECONDS, "the broker's ACLs")


def revoke(admin: Any, filters: Sequence[Any]) -> None:
    """Each filter is of one ACL. Returns when none of them is in force."""
    revoked = set()
    for done in admin.delete_acls(filters).values():
        (binding,) = done.result(_SECONDS)
        revoked.add(binding)
    wait_until(lambda: not revoked & _in_force(admin), None, _SECONDS, "the broker's ACLs")


def _in_force(admin: Any) -> set[Any]:
    """By the authorizer of the broker, which answers this itself."""
    return set(admin.describe_acls(_EVERY).result(_SECONDS))
