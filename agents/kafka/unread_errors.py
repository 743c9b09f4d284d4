"""Keep asyncio quiet about failures of aiokafka that were raised elsewhere.

aiokafka stores each failure in more futures than it reads. asyncio would complain when such a future is collected, at
any time later, and name no cause that the failed call has not raised already.
"""

import asyncio
from typing import Any

from aiokafka.errors import KafkaError


def ignore_unread_kafka_errors() -> None:
    """Set the running loop's exception handler, unless it has one."""
    loop = asyncio.get_running_loop()
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), KafkaError):
        loop.default_exception_handler(context)
