"""A ledger file as the map reads the topics: its records, what follows from them, and the budget of its days."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from hatcast.agents.batch.ledger_days import estimates, ledger_records, read_ledger, running_means
from hatcast.agents.config.settings import Settings
from hatcast.agents.map.events import EventPosition, Hub, log_id
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.page import page_with
from hatcast.agents.map.record import read_budget, read_estimate, read_release, read_running
from hatcast.agents.map.surroundings import read_surroundings
from hatcast.stream.errors import HatcastError
from hatcast.stream.records.projections import HEAD
from hatcast.stream.release.budget_records import budget_record

_ALL_MS: Final = 2**62  # a file is shown as a whole: it does not grow


def feed_of_ledger(path: Path, settings: Settings, hub: Hub) -> Feed:
    """Return the records of a ledger file for the map. Raises HatcastError if it cannot be read or has none."""
    published, budgets = _read(path, settings)
    return feed_of(published, budgets, settings, hub, round(path.stat().st_mtime * 1000))


def page_of_ledger(path: Path, settings: Settings) -> bytes:
    """Return the map of a ledger file as one page. Raises as `feed_of_ledger`, and if a timetable cannot be read."""
    return page_of(*_read(path, settings), settings)


def page_of(published: Sequence[bytes], budgets: Iterable[bytes], settings: Settings) -> bytes:
    """Return the map of some records as one page. Raises HatcastError."""
    feed = feed_of(published, budgets, settings, Hub(0), 0)
    without_tiles = replace(settings.display, basemap=None)  # a browser reads an archive in parts, which needs a server
    return page_with(feed, settings.display.title, read_surroundings(without_tiles))


def feed_of(
    published: Sequence[bytes], budgets: Iterable[bytes], settings: Settings, hub: Hub, written_ms: int
) -> Feed:
    """Return records for the map, with the estimates and running means that follow from those of the policy.

    published   releases and answers to queries
    budgets     budget records
    written_ms  when they were written
    Raises HatcastError without a release of the policy.
    """
    policy = settings.policy
    feed = Feed(_ALL_MS, hub, EventPosition(log_id("records", str(len(published))), [0], [0], [0], [0]), policy.name)
    feed.freshness.answered([])  # no broker can be silent
    feed.freshness.record(written_ms)
    with feed.batch() as changes:
        for offset, record in enumerate(published):
            if HEAD.decode(record).is_answer:
                changes.listed(feed.answers, record)
            elif (release := read_release(record, 0, offset)) is not None:
                changes.add(release)
        for offset, record in enumerate(estimates(published, policy)):
            changes.add(read_estimate(record, 0, offset))
        for offset, record in enumerate(running_means(published, policy)):
            changes.add(read_running(record, 0, offset))
        for offset, record in enumerate(budgets):
            changes.budget(read_budget(record, offset), 0)
    if policy.name not in feed.names():
        raise HatcastError(f"a map needs a release of policy {policy.name!r}: `hatcast batch --ledger` makes them")
    feed.serve()
    return feed


def _read(path: Path, settings: Settings) -> tuple[list[bytes], list[bytes]]:
    """Return the releases and answers of all policies in a ledger file, and the budget records of ours."""
    with read_ledger(path, settings.policy) as days:
        budgets = [budget_record(settings.policy, date, days.summary(date)) for date in days.dates]
    return ledger_records(path), budgets
