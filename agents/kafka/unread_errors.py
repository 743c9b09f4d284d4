"""Suppress asyncio's reports of aiokafka errors that were raised elsewhere.

aiokafka stores each error in more futures than it reads. asyncio reports such a future when it is garbage collected, at
any later time, although the failed call has already raised the error.
"""

import asyncio
from typing import Any

from aiokafka.errors import KafkaError


def ignore_unread_kafka_errors() -> None:
    """Set the running loop's exception handler to one that ignores KafkaError, unless it has a handler."""
    loop = asyncio.get_running_loop()
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), KafkaError):
        loop.default_exception_handler(context)
