"""Wait until the brokers can serve a consumer group, and remove dead members from it."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from aiokafka import errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.group import LeaveGroupRequest

_PATIENCE_S: Final = 30.0
_REMOVAL_S: Final = 3.0
_POLL_S: Final = 0.1
_NOT_YET: Final = (
    errors.CoordinatorNotAvailableError,
    errors.NotCoordinatorError,
    errors.CoordinatorLoadInProgressError,
)


async def wait_for_group(group: str, client: dict[str, Any]) -> None:
    """Wait until a group has a coordinator that answers, for 30 seconds at most.

    A fresh Kafka creates its offsets topic when the first group is looked up. Until that topic has leaders, aiokafka's
    consumer logs each attempt to join as an error. Other errors are left to the consumer, which reports them.
    client   aiokafka's connection options
    """
    try:
        async with asyncio.timeout(_PATIENCE_S):
            admin = AIOKafkaAdminClient(**client)
            try:
                await admin.start()
                while not await _is_served(admin, group):
                    await asyncio.sleep(_POLL_S)
            finally:
                await admin.close()
    except (errors.KafkaError, TimeoutError, AssertionError):  # aiokafka asserts that the metadata name a broker
        return


async def _is_served(admin: AIOKafkaAdminClient, group: str) -> bool:
    try:
        responses = await admin.describe_consumer_groups([group])
    except _NOT_YET:
        return False
    return not any(errors.for_code(code) in _NOT_YET for response in responses for code, *_ in response.groups)


async def count_members(group: str, client: dict[str, Any]) -> int:
    """Return the number of members of a group. Raises KafkaError.

    client   aiokafka's connection options
    """
    await wait_for_group(group, client)
    admin = AIOKafkaAdminClient(**client)
    try:
        await admin.start()
        found = [each for response in await admin.describe_consumer_groups([group]) for each in response.groups]
    finally:
        await admin.close()
    members = 0
    for code, _, _, _, _, of_group, *_ in found:
        if (error := errors.for_code(code)) is not errors.NoError:
            raise error
        members += len(of_group)
    return members


async def remove_members(group: str, members: Iterable[str], client: dict[str, Any]) -> None:
    """Remove members from a group, as if each had left it. Those that are not in it any more are ignored.

    members   their ids
    client    aiokafka's connection options
    Raises KafkaError, after some seconds at the latest.
    """
    admin = AIOKafkaAdminClient(**client)
    try:
        async with asyncio.timeout(_REMOVAL_S):
            await admin.start()
            coordinator = await admin.find_coordinator(group)
            for member in members:
                request = LeaveGroupRequest(group, member)
                response = await admin._send_request_to_node(coordinator, request)  # noqa: SLF001 - no public way
                error = errors.for_code(response.error_code)
                if error not in (errors.NoError, errors.UnknownMemberIdError):
                    raise error
    except TimeoutError:
        raise errors.KafkaTimeoutError(f"not done in {_REMOVAL_S:g} s") from None
    except AssertionError:  # raised by aiokafka: the metadata of a broker that has just restarted may be empty
        raise errors.KafkaConnectionError("no broker is known") from None
    finally:
        await admin.close()
