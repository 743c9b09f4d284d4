"""Operator server for a process without an event loop: it runs in its own thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hatcast.agents.config.address import Address
from hatcast.agents.monitoring.kinds import Process
from hatcast.agents.monitoring.server import READY, OperatorServer


@contextmanager
def serve_in_thread(listen: Address, process: Process, key: str) -> Iterator[None]:
    """Serve the operator endpoints while the block runs. Raises HatcastError if the address cannot be bound.

    key    the setting or option with the address, for the error message
    """
    loop = asyncio.new_event_loop()
    server = OperatorServer(listen, process, lambda: {process.value: READY}, key)
    thread = threading.Thread(target=loop.run_forever, name="metrics", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
