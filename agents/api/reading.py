"""`hatcast.read`: published records, from files or from Kafka; `estimates` and `running_means` follow at no cost."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, overload

from hatcast.agents import sqlite
from hatcast.agents.api.batching import ArrowStream, table_of
from hatcast.agents.api.frames import Answers, BudgetDays, Estimates, Releases, RunningMeans
from hatcast.agents.api.policy import settings_of
from hatcast.agents.batch.ledger_days import estimates as estimate_values
from hatcast.agents.batch.ledger_days import running_means as running_values
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.errors.causes import require
from hatcast.agents.kafka.dump import DUMP, Dump, is_head
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.tables.columns import RECORD
from hatcast.stream.errors import UNREADABLE, HatcastError, RecordingError, name_fix
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.magic import PARQUET_MAGIC
from hatcast.stream.records.projections import PUBLISHED

_FIX: Final = "name a file of `hatcast tail --json`, `batch --json` or `export`, a dump, or a ledger"


def values_of(path: Path, table: str) -> Iterator[bytes]:
    """Yield the records in a file, also those of other kinds.

    table   the table's folder, if the path is the folder of an export
    Raises RecordingError: the file is missing, damaged, or has no records.
    """
    if path.is_dir():
        files = sorted((path / table).glob("*.parquet"))
        if not files:
            raise RecordingError(str(path), f"is a folder without {table}/*.parquet", _FIX)
        for file in files:
            yield from _of_parquet(file)
        return
    magic = _magic(path)
    if magic.startswith(PARQUET_MAGIC):
        yield from _of_parquet(path)
    elif magic == sqlite.MAGIC:
        from hatcast.agents.batch.ledger_days import ledger_records

        yield from ledger_records(path)
    else:
        yield from _of_lines(path)


def _magic(path: Path) -> bytes:
    try:
        return sqlite.read_magic(path)
    except FileNotFoundError:
        raise RecordingError(str(path), "is missing", "check the path") from None
    except OSError as error:
        raise RecordingError(str(path), f"cannot be read ({error.strerror})", "check its permissions") from None


def _of_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, plain or gzip, or the values of a dump."""
    with open_recording([path], DUMP) as recording:
        lines = (recorded.raw for _, recorded in recording)
        first = next(lines, None)
        if first is None:
            return
        if is_head(first):
            yield from (line.value for line in Dump(recording, str(path)) if line.value is not None)
            return
        yield first.rstrip()
        yield from (line.rstrip() for line in lines)


def _of_parquet(path: Path) -> Iterator[bytes]:
    require("pyarrow", str(path))
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            if RECORD not in file.schema_arrow.names:
                raise RecordingError(str(path), f"has no column {RECORD!r}", _FIX)
            for batch in file.iter_batches(columns=[RECORD], use_threads=False):
                yield from (record.encode() for record in batch.column(0).to_pylist() if record is not None)
    except (pa.ArrowException, OSError, ValueError, OverflowError):
        raise RecordingError(str(path), "is not a complete Parquet file", "it may be cut off: make it again") from None


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
        from hatcast.agents.export.run import new_records
        from hatcast.agents.kafka.client import translate_kafka_errors

        with translate_kafka_errors(source):
            for batch in new_records(source, getattr(source.topics, topic), None).batches(source):
                yield from batch.values
    else:
        yield from _file_values(Path(source), kind)


def _file_values(path: Path, kind: str) -> Iterator[bytes]:
    count, any_record = 0, False
    for value in values_of(path, kind):
        count += 1
        if not any_record:
            with suppress(*UNREADABLE):
                PUBLISHED.decode(value)
                any_record = True
        yield value
    if count and not any_record:
        fix = "name the file of releases, not that of readings"
        if path.suffix == ".csv":  # a release may be in it, but its bytes are not one record a line
            fix = "CSV is not read here; name the same records in a .jsonl or .parquet file"
        raise RecordingError(str(path), "has no published records", fix)


def estimates(releases: Releases | Source | ArrowStream, policy: str | Path | Policy | Settings) -> Estimates:
    """Return the estimates of all cells and slots that follow from a policy's releases: those of `hats.estimates`.

    They cost no budget, since they are a function of what is published (docs/specification/tracker.md). Give the
    releases of all days together: a day's estimates use the days before.

    Args:
        releases: of `batch` or `read`, also as a frame of polars or pandas; or a source of `read`, such as the ledger
            with all runs.
        policy: the policy that made them; records of other policies are left out.

    Raises:
        HatcastError: as `read`.
    """
    return Estimates.of(estimate_values(_values(releases), settings_of(policy).policy))


def running_means(releases: Releases | Source | ArrowStream, policy: str | Path | Policy | Settings) -> RunningMeans:
    """Return the running means of all cells and slots that follow from a policy's releases: those of `hats.running`.

    They cost no budget, since they are a function of what is published (docs/continual.md). Give the releases of all
    days together: a window can begin days before.

    Args:
        releases: of `batch` or `read`, also as a frame of polars or pandas; or a source of `read`, such as the ledger
            with all runs.
        policy: the policy that made them, with its `running`; records of other policies are left out.

    Raises:
        HatcastError: the policy has no running means; or as `read`.
    """
    checked = settings_of(policy).policy
    if not checked.running:
        raise HatcastError('policy: has no running means; give it running=[{"name": "today", "window": "today"}]')
    return RunningMeans.of(running_values(_values(releases), checked))


def _values(releases: Releases | Source | ArrowStream) -> Iterable[bytes]:
    """Return the records of releases, of a source, or of a frame that was made of releases."""
    if isinstance(releases, Releases):
        return releases.values
    if isinstance(releases, str | Path | Settings):
        return stored_values(releases, "releases", Releases.TOPIC)
    table = table_of(releases)
    if RECORD not in table.column_names:
        raise HatcastError(f"the frame has no column {RECORD!r}: give that of `to_polars()` or `to_pandas()`, uncut")
    return [record.encode() for record in table[RECORD].to_pylist() if isinstance(record, str)]
