"""Task and result file that the contenders in this repository's environment share."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.ingest.reference import Totals
from bench.settings import PARTITIONS
from bench.stopwatch import Stopwatch
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.worker.folds import fold_maker
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.checkpoint import totals
from hatcast.stream.fold.reading_fold import Fold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms


@dataclass(frozen=True, slots=True)
class Task:
    """A contender's task: fold the `records` records of a topic, and write the result as JSON."""

    settings: Settings
    topic: str
    records: int
    result: Path

    @classmethod
    def given(cls) -> "Task":
        """Parse the command line: configuration, topic, records, result."""
        config, topic, records, result = sys.argv[1:]
        return cls(load_settings(Path(config)), topic, int(records), Path(result))

    def folds(self) -> list[Fold]:
        """Return the worker's folds, one per partition."""
        policy = self.settings.policy
        make = fold_maker(policy, Calendar(policy), FoldUsers(Pseudonyms(bytes(KEY_BYTES))), self.settings, PARTITIONS)
        return [make(partition) for partition in range(PARTITIONS)]


def write(task: Task, stopwatch: Stopwatch, folds: Iterable[Fold]) -> None:
    """Write the result of a contender with its state in memory."""
    result = stopwatch.result()
    outcomes: dict[str, int] = {}
    hats: Totals = {}
    for fold in folds:
        for outcome, records in fold.outcomes.items():
            if records:
                outcomes[outcome] = outcomes.get(outcome, 0) + records
        for hat, (users, count, total, maximum) in totals(fold.slots.values()).items():
            before = hats.get(hat, (0, 0, 0, 0))
            hats[hat] = (before[0] + users, before[1] + count, before[2] + total, max(before[3], maximum))
    task.result.write_text(json.dumps(result | {"outcomes": outcomes, "hats": hats}))
