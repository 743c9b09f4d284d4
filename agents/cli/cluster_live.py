"""`hatcast cluster --live`: parse the parameters, run the clustering, print its result."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
from rich.console import Console

from hatcast.agents.cli.recordings import checked_format
from hatcast.agents.config.settings import load_settings
from hatcast.stream.readings.formats import FormatChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArguments:
    """Parsed options, checked against each other."""

    config: Path
    date: str
    slots: str | None
    epsilon: float
    clusters: int
    iterations: int
    seed: int
    blend: str
    state: Path
    round_s: float
    files: Sequence[Path]
    feed_format: FormatChoice | None
    ledger: Path | None
    plot_file: Path | None
    as_json: bool


def run(given: LiveArguments) -> None:
    """Run a live clustering and print its result."""
    from hatcast.agents.cluster import show
    from hatcast.agents.cluster.live.charge import RecordedUsers
    from hatcast.agents.cluster.live.plan import Chosen
    from hatcast.agents.cluster.live.run import LiveOptions, run_live
    from hatcast.agents.cluster.vectors import select_slots

    settings = load_settings(given.config)
    policy = settings.policy
    slots = select_slots(policy, None if given.slots is None else given.slots.split(","))
    chosen = Chosen(
        policy_id=policy.policy_id,
        date=given.date,
        slots=tuple(slots),
        clusters=given.clusters,
        iterations=given.iterations,
        epsilon=given.epsilon,
        seed=given.seed,
        blend=given.blend,
    )
    users = None
    if given.feed_format is not None and given.ledger is not None:
        feed = checked_format(given.feed_format, policy, given.files)
        users = RecordedUsers(given.files, feed, given.feed_format, given.ledger)
    options = LiveOptions(
        state=given.state,
        round_s=given.round_s,
        users=users,
    )
    console = Console(stderr=True)
    with console.status("") as status:

        def note(text: str) -> None:
            if console.is_terminal:
                status.update(text)

        record = run_live(settings, chosen, options, note)
    if given.plot_file is not None:
        show.plot(record, given.plot_file)
    click.echo(show.live_notice(record, policy.unit), err=True)
    if given.as_json:
        click.echo(msgspec.json.encode(record))
    else:
        Console().print(show.table_of(record))
