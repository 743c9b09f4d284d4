"""Export of the new records of one output topic."""

from collections.abc import Callable

import msgspec

from hatcast.agents.config.settings import Settings
from hatcast.agents.export.folder import ExportFolder, Progress
from hatcast.agents.export.topics import new_records
from hatcast.agents.tables.records import TABLES


class Exported(msgspec.Struct, frozen=True):
    """Result for one table.

    records    records of the topic that were merged into the files
    rejected   records that are not of this table, which were left out
    """

    table: str
    topic: str
    records: int
    rejected: int


def export(settings: Settings, folder: ExportFolder, key: str, advance: Callable[[str, int], None]) -> Exported:
    """Merge the new records of a topic into a folder's files.

    key       the topic's key in `[topics]`, as in TABLES
    advance   called with the topic and the number of offsets that were read since the last call
    Raises HatcastError; the folder then holds what was read before, and the next call goes on there.
    """
    table, topic = TABLES[key], getattr(settings.topics, key)
    new = new_records(settings, topic, folder.progress(topic))
    progress = Progress(new.topic_id, dict(new.starts))
    records = rejected = 0
    for batch in new.batches(settings):
        rows = [row for value in batch.values if (row := table.row(value)) is not None]
        folder.merge(table, rows)
        read = sum(offset - progress.offsets[partition] for partition, offset in batch.offsets.items())
        progress.offsets.update(batch.offsets)
        folder.set_progress(topic, progress)
        records += len(rows)
        rejected += len(batch.values) - len(rows)
        advance(topic, read)
    return Exported(table.name, topic, records, rejected)
