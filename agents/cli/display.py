"""`hatcast display`: serve the live map."""

import asyncio
import signal
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import click
import structlog

from hatcast.agents.cli.options import (
    EXISTING_FILE,
    METRICS_LISTEN,
    config_option,
    log_level_option,
    metrics_listen_option,
)
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.config.tables import Address
from hatcast.agents.kafka.grants import Role
from hatcast.agents.monitoring.logs import configure_logs

log = structlog.get_logger()


@click.command(epilog="Example:  hatcast display --config hatcast.toml --host 0.0.0.0 --port 8080")
@config_option
@click.option("--host", metavar="HOST", help="Address to listen on.  [default: display.listen, 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0: any free port.  [default: display.listen, 8080]")
@click.option(
    "--ledger",
    type=EXISTING_FILE,
    help="Show the records of this ledger file of `hatcast batch`, in place of the topics.",
)
@metrics_listen_option
@log_level_option
def command(
    config: Path,
    host: str | None,
    port: int | None,
    ledger: Path | None,
    metrics_listen: Address | None,
    log_level: str,
) -> None:
    """Serve the live map and its JSON API, until Ctrl-C or SIGTERM.

    It reads only the public topics hats.means, hats.estimates, hats.queries, hats.budget and, under a policy with
    devices, hats.clusters. Put a TLS proxy in front of it before you open it to others; run any number of instances.

    With --ledger it needs no Kafka, and shows the file as it is at the start. `hatcast map` writes the same as one
    file.
    """
    settings = load_settings(config)
    configure_logs(log_level)
    default = settings.display.listen
    listen = Address(host or default.host, default.port if port is None else port)
    asyncio.run(_serve(settings, listen, ledger, metrics_listen))


async def _serve(settings: Settings, listen: Address, ledger: Path | None, metrics_listen: Address | None) -> None:
    from hatcast.agents.kafka.grants import check_permissions
    from hatcast.agents.map.server import Display
    from hatcast.agents.monitoring.declarations import Process
    from hatcast.agents.monitoring.server import OperatorServer

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopping.set)
    async with AsyncExitStack() as stack:
        stored = None
        if ledger is not None:  # models take a second to import
            from hatcast.agents.batch.ledger_map import feed_of_ledger

            stored = partial(feed_of_ledger, ledger, settings)
        display = Display(settings, listen, stored=stored)
        if metrics_listen is not None:
            operators = OperatorServer(metrics_listen, Process.DISPLAY, display.parts, METRICS_LISTEN)
            stack.push_async_callback(operators.stop)
            await operators.start()
        stack.push_async_callback(display.stop)
        await display.read_files()
        if ledger is None:
            await asyncio.to_thread(check_permissions, settings, Role.DISPLAY)
        address = await display.start()
        log.info("map served", url=f"http://{address}/")
        tasks = [asyncio.create_task(display.wait()), asyncio.create_task(stopping.wait())]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
