"""State file of a clustering, in SQLite: whatever is drawn or sent is stored first, and never drawn again."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from hatcast.agents import sqlite
from hatcast.stream.errors import UNREADABLE, HatcastError
from hatcast.stream.kmeans.setting import ClusteringSetting, top_of
from hatcast.stream.policy.policy import Policy

_SHOWN: Final = 12  # digits of the id in the name of the reservation


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that the user chooses. `blend`: see `hatcast.agents.cluster.release.ClusterBlend`."""

    policy_id: str
    date: str
    slots: tuple[str, ...]
    clusters: int
    iterations: int
    epsilon: float
    seed: int
    blend: str

    def setting(self, policy: Policy) -> ClusteringSetting:
        """Return the setting of the K-means. Raises SettingError."""
        return ClusteringSetting(
            len(self.slots), top_of(policy), self.clusters, self.iterations, self.epsilon, self.seed
        )


class ClusteringPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One clustering."""

    clustering: str  # random id
    chosen: Chosen
    # first offset of its answers in each partition of `cluster-answers`; none without devices
    answers_from: tuple[int, ...]

    @property
    def query(self) -> str:
        """Name of its reservation in the ledger."""
        return f"clustering-{self.clustering[:_SHOWN]}"


_APPLICATION_ID: Final = 0x6863636C  # "hccl": distinguishes the file from other databases
_FORMAT: Final = 1
_PRAGMAS: Final = ("synchronous = EXTRA",)  # a deleted journal does not return after a power cut
_SCHEMA: Final = """
CREATE TABLE plan (body BLOB NOT NULL, charged INTEGER NOT NULL DEFAULT 0, result BLOB);
CREATE TABLE rounds (number INTEGER PRIMARY KEY, body BLOB NOT NULL, closes_ms INTEGER NOT NULL, numbers BLOB);
"""


class RoundNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Noisy numbers of a round: all that the next centres follow from. A group without users has none."""

    # counts, sums: of the trusted users, in steps: [K] and [K][d]
    counts: list[int] | None
    sums: list[list[int]] | None
    # answered, local_sums: of the devices: `hatcast.stream.kmeans.lloyd.tally_answers`
    answered: list[float] | None
    local_sums: list[list[float]] | None
    # central, devices: number of trusted users, and of devices that answered; public
    central: int
    devices: int


T = TypeVar("T")

_PLAN: Final = msgspec.json.Decoder(ClusteringPlan)
_NUMBERS: Final = msgspec.json.Decoder(RoundNumbers)
_encode: Final = msgspec.json.Encoder().encode


class ClusteringState:
    """An open state file. Every write is durable when its method returns."""

    def __init__(self, connection: sqlite3.Connection, path: Path, plan: ClusteringPlan) -> None:
        self._sql = connection
        self._path = path
        self.plan = plan  # the clustering

    @property
    def is_charged(self) -> bool:
        """Whether the ledger has charged the trusted users."""
        return bool(self._sql.execute("SELECT charged FROM plan").fetchone()[0])

    def mark_charged(self) -> None:
        """Store that the ledger has charged the trusted users."""
        self._write("UPDATE plan SET charged = 1")

    @property
    def result(self) -> bytes | None:
        """The result record; None until it is computed."""
        row = self._sql.execute("SELECT result FROM plan").fetchone()
        return None if row[0] is None else bytes(row[0])

    def store_result(self, record: bytes) -> None:
        """Store the result record."""
        self._write("UPDATE plan SET result = ?", record)

    def round(self, number: int) -> tuple[bytes, int] | None:
        """Return the record of a round, in the bytes that are sent, and its end (ms UTC); None if it was not begun."""
        row = self._sql.execute("SELECT body, closes_ms FROM rounds WHERE number = ?", (number,)).fetchone()
        return None if row is None else (bytes(row[0]), int(row[1]))

    def begin_round(self, number: int, body: bytes, closes_ms: int) -> None:
        """Store a round before it is sent, in place of one that was not."""
        self._write("INSERT OR REPLACE INTO rounds (number, body, closes_ms) VALUES (?, ?, ?)", number, body, closes_ms)

    def numbers(self, number: int) -> RoundNumbers | None:
        """Return the noisy numbers of a round; None until it has ended."""
        row = self._sql.execute("SELECT numbers FROM rounds WHERE number = ?", (number,)).fetchone()
        return None if row is None or row[0] is None else _decoded(_NUMBERS, row[0])

    def end_round(self, number: int, numbers: RoundNumbers) -> None:
        """Store the noisy numbers of a round, once."""
        self._write("UPDATE rounds SET numbers = ? WHERE number = ? AND numbers IS NULL", _encode(numbers), number)

    def _write(self, statement: str, *values: bytes | int) -> None:
        try:
            with sqlite.transaction(self._sql):
                self._sql.execute(statement, values)
        except sqlite3.Error as error:
            raise HatcastError(
                f"{self._path} cannot be written ({' '.join(str(error).split())}): check its disk and start again;"
                " nothing that is not stored was sent"
            ) from None


@contextmanager
def open_state(path: Path, chosen: Chosen, make: Callable[[], ClusteringPlan]) -> Iterator[ClusteringState]:
    """Open the state file of a clustering; create it with the plan that `make` returns if it is missing.

    Raises HatcastError if it is not a state file, damaged, in use, or of a clustering with other parameters.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with sqlite.open_locked(path, *_PRAGMAS) as database:
            yield ClusteringState(database, path, _plan(database, path, chosen, make))
    except OSError as error:
        raise HatcastError(f"{path} cannot be written ({error.strerror}): name another file with --state") from None
    except sqlite3.OperationalError as error:
        if sqlite.is_locked(error):
            raise HatcastError(f"{path} is in use by another `hatcast cluster`: wait until it has ended") from None
        if sqlite.is_damaged(error):
            raise _damaged_error(path) from None
        raise HatcastError(f"{path} cannot be used ({error}): name another file with --state") from None
    except sqlite3.DatabaseError as error:
        if sqlite.is_damaged(error):
            raise _damaged_error(path) from None
        raise HatcastError(f"{path} is not the state file of a clustering: name another file with --state") from None


def _damaged_error(path: Path) -> HatcastError:
    return HatcastError(
        f"{path} is a damaged state file: start a new clustering with another --state, which costs its epsilon again"
    )


def _plan(
    database: sqlite3.Connection, path: Path, chosen: Chosen, make: Callable[[], ClusteringPlan]
) -> ClusteringPlan:
    found = sqlite.identity(database)
    if found is None:
        plan = make()
        with sqlite.transaction(database):
            sqlite.execute_all(database, _SCHEMA)
            database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {_FORMAT}")
            database.execute("INSERT INTO plan (body) VALUES (?)", (_encode(plan),))
        return plan
    if found != (_APPLICATION_ID, _FORMAT):
        raise HatcastError(f"{path} is not the state file of a clustering: name another file with --state")
    sqlite.check_structure(database)
    sqlite.check_schema(database, _SCHEMA)
    sqlite.check_types(database)
    row = database.execute("SELECT body FROM plan").fetchone()
    if row is None:
        raise sqlite.damaged()
    plan = _decoded(_PLAN, row[0])
    if plan.chosen != chosen:
        raise HatcastError(
            f"{path} is the state file of another clustering ({_differences(plan.chosen, chosen)}): give the same"
            " options to go on with it, or another --state for a new one, which costs its epsilon again"
        )
    return plan


def _decoded(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    try:
        return decoder.decode(body)
    except UNREADABLE:
        raise sqlite.damaged() from None


def _differences(stored: Chosen, given: Chosen) -> str:
    before, now = msgspec.structs.asdict(stored), msgspec.structs.asdict(given)
    differing = {key: value for key, value in before.items() if value != now[key]}
    texts = {key: ",".join(value) if isinstance(value, tuple) else value for key, value in differing.items()}
    return ", ".join(f"{key}: {text}" for key, text in texts.items())
