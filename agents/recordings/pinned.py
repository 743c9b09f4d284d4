"""Pin how readings are read, in the file that counts their cost, so that no bus or day counts as two.

The same record under other options is another bus, day or value: what an earlier run released or reported of it would
be paid for once more. For ledger files and the state files of devices.    [docs/specification/fold.md, What is pinned]
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date as local_date
from datetime import timedelta
from pathlib import Path
from typing import Final, Self

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.dump import DUMP
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Columns, FormatChoice
from hatcast.stream.readings.reading import READING_RULES
from hatcast.stream.readings.recording import Contents

SCHEMA: Final = """
CREATE TABLE read_as (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE read_contents (digest BLOB PRIMARY KEY, options TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE date_rules (date TEXT PRIMARY KEY, rules TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE time_rules (date TEXT PRIMARY KEY, rules TEXT NOT NULL) WITHOUT ROWID;
"""
_RULES: Final = "reading_rules/"
_APART: Final = 2  # days between the local dates of one instant in two zones: offsets are -12:00 to +14:00


@dataclass(frozen=True, slots=True)
class Read:
    """Options and rules of the code by which readings are read."""

    policy: Policy
    meaning: Mapping[str, str]  # name -> value, fixed for all runs with a file; the reading rules for a policy's life
    options: str  # fixed for each content: agencies may differ in formats and columns
    contents: Contents  # of the recording; none of a live source, which comes once

    @classmethod
    def of(cls, choice: FormatChoice, contents: Contents, settings: Settings) -> Self:
        """Return how contents of this format are read; `choice` may name a dump."""
        policy = settings.policy
        meaning = {f"{_RULES}{policy.name}": str(READING_RULES), "policy.timezone": policy.timezone}
        if choice.name == DUMP.name:
            # Fixed as a worker's: each dump of a topic has the records of the earlier ones, and is another content.
            topics = settings.topics
            meaning["telemetry_format"] = topics.telemetry_format
            meaning["telemetry_partitioner"] = topics.telemetry_partitioner
            parts = list[str]()
        else:
            meaning["derive_speed"] = choice.derive or "none"
            columns = choice.columns or Columns()
            if choice.mapped or columns.times_in is not None:  # else zone and unit are in each record
                meaning["times_in"] = columns.times_in or policy.timezone
                meaning |= {} if columns.unit is None else {"unit": columns.unit}
            parts = [*columns.options, *(["header_time"] if choice.header_time else [])]
        return cls(policy, meaning, ", ".join([f"format {choice.name}", *parts]), contents)

    @property
    def times(self) -> Calendar | None:
        """The calendar of times without an offset; None if the policy's own has their rules."""
        zone = self.meaning.get("times_in", self.policy.timezone)
        return None if zone == self.policy.timezone else Calendar(replace(self.policy, timezone=zone))


class PinnedReadings:
    """Options and rules by which the readings of a ledger file or state file were read."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self._path = path
        self._times: Calendar | None = None

    def check(self, read: Read) -> None:
        """Raise HatcastError if earlier runs read the same content, or the file's readings, in another way."""
        found = dict(self._database.execute("SELECT name, value FROM read_as"))
        for name, value in read.meaning.items():
            if (before := found.get(name, value)) != value:
                if name.startswith(_RULES):
                    raise HatcastError(
                        f"{self._path}: this hatcast reads records by rules {READING_RULES}, policy"
                        f" {read.policy.name!r} was run under rules {before}, and one bus could count as two: run a"
                        f" hatcast with rules {before}, or let a policy with a new policy.name replace it"
                        " (policy.replaces and policy.from)"
                    )
                raise HatcastError(
                    f"{self._path}: {name} is {value}, and earlier runs had {before}: readings of one day could count"
                    f" as two, and each bus could lose {_cost(read.policy)} once more; use {name} {before}, or, for"
                    " other buses, another file in place of this one"
                )
        for file, digest in read.contents:
            for (before,) in self._database.execute("SELECT options FROM read_contents WHERE digest = ?", (digest,)):
                if before != read.options:
                    raise HatcastError(
                        f"{file}: an earlier run used readings of the same content as {before}, not as {read.options}:"
                        f" its buses, or their days, would count twice, and each bus could lose {_cost(read.policy)}"
                        " once more; use the earlier options"
                    )
        if (times := read.times) is not None:
            times.check_rules(self._database.execute("SELECT date, rules FROM time_rules"))

    def pin(self, read: Read) -> None:
        """Fix how this is read, before anything of it leaves. The caller opens the transaction."""
        rows = [(digest, read.options) for _, digest in read.contents]
        self._database.executemany("INSERT OR IGNORE INTO read_as VALUES (?, ?)", read.meaning.items())
        self._database.executemany("INSERT OR IGNORE INTO read_contents VALUES (?, ?)", rows)
        self._times = read.times

    def check_dates(self, calendar: Calendar) -> None:
        """Raise HatcastError if a date was opened under other rules of the time zone than this process has."""
        calendar.check_rules(self._database.execute("SELECT date, rules FROM date_rules"))

    def pin_date(self, date: str, calendar: Calendar) -> None:
        """Fix which instants, and which times without an offset, are on a date. The caller opens the transaction."""
        self._database.execute("INSERT OR IGNORE INTO date_rules VALUES (?, ?)", (date, calendar.rules_of(date)))
        if self._times is not None:
            near = [_days_after(date, days) for days in range(-_APART, _APART + 1)]
            rules = [(each, self._times.rules_of(each)) for each in near]
            self._database.executemany("INSERT OR IGNORE INTO time_rules VALUES (?, ?)", rules)

    def forget_dates(self, before: str) -> None:
        """Delete the rules of the local dates before one, on which nothing is counted any more."""
        self._database.execute("DELETE FROM date_rules WHERE date < ?", (before,))
        self._database.execute("DELETE FROM time_rules WHERE date < ?", (_days_after(before, -_APART),))


def _days_after(date: str, days: int) -> str:
    return (local_date.fromisoformat(date) + timedelta(days)).isoformat()


def _cost(policy: Policy) -> str:
    return f"epsilon {policy.daily_limit:g} a day"
