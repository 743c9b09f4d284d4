"""`hatcast.read`: published records, from files or from Kafka."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, overload

from hatcast.agents.api.record_files import values_of
from hatcast.agents.api.records import Answers, BudgetDays, Estimates, Releases, RunningMeans
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.stream.errors import UNREADABLE, HatcastError, RecordingError, name_fix
from hatcast.stream.records.projections import PUBLISHED

Source = str | Path | Settings
AnyRecords = Releases | Answers | Estimates | RunningMeans | BudgetDays
_KINDS: Final[dict[str, type[AnyRecords]]] = {
    "releases": Releases,
    "answers": Answers,
    "estimates": Estimates,
    "running": RunningMeans,
    "budget": BudgetDays,
}


@overload
def read(source: Source, kind: Literal["releases"] = "releases", *, policy: str | None = None) -> Releases: ...
@overload
def read(source: Source, kind: Literal["answers"], *, policy: str | None = None) -> Answers: ...
@overload
def read(source: Source, kind: Literal["estimates"], *, policy: str | None = None) -> Estimates: ...
@overload
def read(source: Source, kind: Literal["running"], *, policy: str | None = None) -> RunningMeans: ...
@overload
def read(source: Source, kind: Literal["budget"], *, policy: str | None = None) -> BudgetDays: ...
def read(
    source: Source, kind: str = "releases", *, policy: str | None = None
) -> Releases | Answers | Estimates | RunningMeans | BudgetDays:
    """Return published records, each once, from a file or from Kafka, in the order of the file or of the partitions.

    Args:
        source: a file of JSON lines, such as the output of `hatcast tail --json` or `hatcast batch --json`; a Parquet
            file or the folder of `hatcast export`; a dump of the topic; a ledger file. Or a topic of Kafka, from its
            start to its present end: a hatcast.toml, or the settings of `load_settings`.
        kind: `releases`, `answers` to queries over days, `estimates`, `running` means, or the days of the `budget`;
            records of other kinds are left out.
        policy: name of the policy whose records are returned; None: all policies.

    Raises:
        HatcastError: the source has no such records, cannot be read, or the broker is unreachable.
    """
    if kind not in _KINDS:
        raise HatcastError(f"kind: {kind!r} is not a kind of records; {name_fix(kind, _KINDS)}")
    of_kind = _KINDS[kind]
    return of_kind.of(stored_values(source, kind, of_kind.TOPIC), policy)


def stored_values(source: Source, kind: str, topic: str) -> Iterator[bytes]:
    """Yield the records of a file or of a topic, whose key in `[topics]` is named. Raises HatcastError."""
    if not isinstance(source, Settings) and Path(source).suffix == ".toml":
        source = load_settings(source)
    if isinstance(source, Settings):
        yield from _topic_values(source, topic)
    else:
        yield from _file_values(Path(source), kind)


def _file_values(path: Path, kind: str) -> Iterator[bytes]:
    count, any_record = 0, False
    for value in values_of(path, kind):
        count += 1
        any_record = any_record or _is_published(value)
        yield value
    if count and not any_record:
        fix = "name the file of releases, not that of readings"
        if path.suffix == ".csv":  # a release may be in it, but its bytes are not one record a line
            fix = "CSV is not read here; name the same records in a .jsonl or .parquet file"
        raise RecordingError(str(path), "has no published records", fix)


def _is_published(value: bytes) -> bool:
    try:
        PUBLISHED.decode(value)
    except UNREADABLE:
        return False
    return True


def _topic_values(settings: Settings, key: str) -> Iterator[bytes]:
    from hatcast.agents.export.topics import new_records
    from hatcast.agents.kafka.client import translate_kafka_errors

    with translate_kafka_errors(settings):
        for batch in new_records(settings, getattr(settings.topics, key), None).batches(settings):
            yield from batch.values
