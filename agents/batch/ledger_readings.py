"""How the readings of a ledger file were read: fixed by its runs, so that none counts as two.

The same record under other options is another bus, day or value: what an earlier run released of it would be released
once more.    [docs/specification/fold.md, What is pinned]
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from hatcast.agents.batch.ledger_database import transaction
from hatcast.agents.config.settings import Settings
from hatcast.agents.recordings.dump_file import DUMP
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Columns, FormatChoice
from hatcast.stream.readings.reading import READING_RULES
from hatcast.stream.readings.recording import Contents, Recording

_RULES: Final = "reading_rules/"


@dataclass(frozen=True, slots=True)
class Read:
    """How a recording is read, as far as options and the code decide it.

    meaning   name -> value, fixed for the whole ledger; the reading rules for a policy's life
    options   fixed for each file's content: agencies may differ in formats and columns
    """

    meaning: Mapping[str, str]
    options: str
    contents: Contents

    @classmethod
    def of(cls, choice: FormatChoice, recording: Recording, settings: Settings) -> Self:
        """Return how a recording of this format is read; `choice` may name a dump."""
        meaning = {f"{_RULES}{settings.policy.name}": str(READING_RULES)}
        if choice.name == DUMP.name:
            # Fixed as a worker's: each dump of a topic has the records of the earlier ones, and is another content.
            topics = settings.topics
            meaning["telemetry_format"] = topics.telemetry_format
            meaning["telemetry_partitioner"] = topics.telemetry_partitioner
            parts = list[str]()
        else:
            meaning["derive_speed"] = choice.derive or "none"
            columns = choice.columns or Columns()
            if choice.mapped:  # other formats have zone and unit in each record
                meaning["times_in"] = columns.times_in or settings.policy.timezone
                meaning |= {} if columns.unit is None else {"unit": columns.unit}
            names = Columns(dict(sorted(columns.names.items()))).text()
            parts = [f"columns {names}"] if names else []
            parts += [] if columns.time_format is None else [f"time_format {columns.time_format}"]
        return cls(meaning, ", ".join([f"format {choice.name}", *parts]), recording.contents())


class LedgerReadings:
    """How the readings of a ledger file were read."""

    def __init__(self, database: sqlite3.Connection, path: Path, policy: Policy) -> None:
        self._database = database
        self._path = path
        self._policy = policy

    def check(self, read: Read) -> None:
        """Raise HatcastError if earlier runs read the same content, or the ledger's readings, in another way."""
        found = dict(self._database.execute("SELECT name, value FROM read_as"))
        for name, value in read.meaning.items():
            if (before := found.get(name, value)) != value:
                raise self._other_rules(before) if name.startswith(_RULES) else self._other_meaning(name, before, value)
        for file, digest in read.contents:
            for (before,) in self._database.execute("SELECT options FROM read_contents WHERE digest = ?", (digest,)):
                if before != read.options:
                    raise HatcastError(
                        f"{file}: an earlier run released readings of the same content as {before}, not as"
                        f" {read.options}: its buses, or their days, would count twice, and each bus could lose"
                        f" {self._cost} once more; use the earlier options"
                    )

    def pin(self, read: Read) -> None:
        """Fix how this is read, before anything of it is released. Raises HatcastError if the file is not writable."""
        rows = [(digest, read.options) for _, digest in read.contents]
        with transaction(self._database, self._path):
            self._database.executemany("INSERT OR IGNORE INTO read_as VALUES (?, ?)", read.meaning.items())
            self._database.executemany("INSERT OR IGNORE INTO read_contents VALUES (?, ?)", rows)

    def _other_meaning(self, name: str, before: str, now: str) -> HatcastError:
        return HatcastError(
            f"{self._path}: {name} is {now}, and earlier runs had {before}: readings of one day could be released as"
            f" two, and each bus could lose {self._cost} once more; use {name} {before}, or, for other buses, another"
            " ledger file"
        )

    def _other_rules(self, before: str) -> HatcastError:
        return HatcastError(
            f"{self._path}: this hatcast reads records by rules {READING_RULES}, policy {self._policy.name!r} was run"
            f" under rules {before}, and one bus could count as two: run a hatcast with rules {before}, or let a policy"
            " with a new policy.name replace it (policy.replaces and policy.from)"
        )

    @property
    def _cost(self) -> str:
        return f"epsilon {self._policy.daily_limit:g} a day"
