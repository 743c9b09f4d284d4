"""Wait until the brokers can serve a consumer group."""

import asyncio
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
    for_code,
)

_PATIENCE_S: Final = 30.0
_POLL_S: Final = 0.1
_NOT_YET: Final = (CoordinatorNotAvailableError, NotCoordinatorError, CoordinatorLoadInProgressError)


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
    except (KafkaError, TimeoutError, AssertionError):  # aiokafka asserts that the metadata name a broker
        return


async def _is_served(admin: AIOKafkaAdminClient, group: str) -> bool:
    try:
        for response in await admin.describe_consumer_groups([group]):
            for code, *_ in response.groups:
                if for_code(code) in _NOT_YET:
                    return False
    except _NOT_YET:
        return False
    return True
