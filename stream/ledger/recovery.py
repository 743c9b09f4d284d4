"""Ledger recovery: whether this server has every published record, and how a recovery begins and ends. [decisions/0004]

A token belongs to one server process with one replication history. No commit succeeds between the beginning of a
recovery, which removes the token, and its end.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import OutputPartition, Position
from hatcast.stream.ledger.rejections import RecoveryEnded, Unrecovered
from hatcast.stream.ledger.view import Decision, Draft, View, Wanted, number_of, text_of

_SERVER = ("run_id", "replid")
_ATTEMPT = ("attempt", "attempt_run_id", "attempt_replid")

RECOVERED_ROWS: Wanted = {rows.RECOVERY: {"token", *_SERVER}, rows.SERVER: _SERVER}  # what `require_recovered` reads


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """The recovery of the ledger, as read at one time."""

    token: str  # of the finished recovery; "" while the ledger is not recovered
    attempt: str  # token of a recovery in progress; "" for none
    sealed_through: str  # the last sealed local date of the policy; "" for none
    commits: int  # number of commits in the domain, of all policies and workers
    generation: int  # number of this recovery: Redis went back if it is not greater than that of another known one
    sequences: Mapping[int, int]  # release partition -> its commit sequence


@dataclass(frozen=True, slots=True)
class Attempt:
    """A recovery in progress, which any worker may join."""

    token: str
    ours: bool  # this call began it
    is_fenced: bool  # all publishers are fenced, and the end offsets of the output topics are stored
    is_kept: bool = False  # a topic lost records, and what it may have had is kept

    @property
    def check(self) -> "RecoveryCheck":
        """Condition of each step. Once records are kept, no step is applied to a copy from before that."""
        return RecoveryCheck.kept(self.token) if self.is_kept else RecoveryCheck.in_progress(self.token)


@dataclass(frozen=True, slots=True)
class RecoveryCheck:
    """The recovery that must still be current when a step is applied: a finished one, or one in progress."""

    field: str
    token: str

    @staticmethod
    def finished(token: str) -> "RecoveryCheck":
        """Require this finished recovery."""
        return RecoveryCheck("token", token)

    @staticmethod
    def in_progress(token: str) -> "RecoveryCheck":
        """Require this recovery in progress."""
        return RecoveryCheck("attempt", token)

    @staticmethod
    def kept(token: str) -> "RecoveryCheck":
        """Require this recovery in progress, after it has kept all unsent records."""
        return RecoveryCheck("kept", token)


def require(draft: Draft, check: RecoveryCheck) -> None:
    """Raise RecoveryEnded unless this recovery is as far as it must be."""
    if draft.compare(rows.RECOVERY, check.field) != check.token.encode():
        raise RecoveryEnded


def require_recovered(draft: Draft, token: str | None) -> bytes:
    """Return the token of this server's finished recovery. Raises Unrecovered unless it is this one (None: any)."""
    stored = draft.compare(rows.RECOVERY, "token")
    if not stored or any(draft.compare(rows.RECOVERY, each) != draft.compare(rows.SERVER, each) for each in _SERVER):
        raise Unrecovered
    if token is not None and stored != token.encode():
        raise Unrecovered
    return stored


def state_rows(name: str, release_partitions: Iterable[int]) -> Wanted:
    """Return what `recovery_state` reads."""
    return {
        rows.RECOVERY: None,
        rows.SERVER: _SERVER,
        rows.SEALED: {name},
        rows.SEQUENCES: {rows.ALL, *(rows.sequence_field(name, r) for r in release_partitions)},
    }


def recovery_state(view: View, name: str, release_partitions: Collection[int]) -> RecoveryState:
    """Return whether the ledger is recovered, and the commit sequences of release partitions. Raises DamagedRow."""
    draft, stored = Draft(view), view.whole(rows.RECOVERY)
    is_here = all(stored.get(each) == view.get(rows.SERVER, each) for each in _SERVER)
    sealed = view.get(rows.SEALED, name)
    return RecoveryState(
        token=text_of(rows.RECOVERY, stored.get("token", b"")) if is_here else "",
        attempt=text_of(rows.RECOVERY, stored.get("attempt", b"")),
        sealed_through="" if sealed is None else text_of(rows.SEALED, sealed),
        commits=draft.number(rows.SEQUENCES, rows.ALL),
        generation=draft.number(rows.RECOVERY, "generation"),
        sequences={r: draft.number(rows.SEQUENCES, rows.sequence_field(name, r)) for r in release_partitions},
    )


RECOVERY_ROWS: Wanted = {rows.RECOVERY: None, rows.SERVER: _SERVER, rows.ENDS: None, rows.ADOPTED: None}
"""What `begin`, `store_ends` and `finish` read, but for seals"""


def begin(view: View, new: str, replaced: str, generation: int) -> Decision[Attempt]:
    """Begin a recovery, or join the one in progress.

    new          token of a new recovery
    replaced     token of a recovery in progress to replace; "" for none
    generation   the greatest one that this worker knows
    """
    draft, is_fenced = Draft(view), bool(view.whole(rows.ENDS))
    attempt, goes_on = draft.compare(rows.RECOVERY, "attempt"), _is_of_this_server(draft)
    if attempt is not None and goes_on and attempt != replaced.encode():
        known = text_of(rows.RECOVERY, attempt)
        return Decision(Attempt(known, known == new, is_fenced), draft.changes)
    draft.compare(rows.RECOVERY, "generation")
    draft.compare(rows.RECOVERY, "token")
    # Greater than that of any recovery whose token this store may get back from a copy.
    greatest = max(draft.number(rows.RECOVERY, "generation"), generation)
    for field in (*_SERVER, "token", "kept"):
        draft.set(rows.RECOVERY, field, None)
    for field, value in zip(_ATTEMPT, (new.encode(), *_server(draft)), strict=True):
        draft.set(rows.RECOVERY, field, value)
    draft.set_number(rows.RECOVERY, "generation", greatest + 1)
    draft.delete(rows.ENDS)
    return Decision(Attempt(new, ours=True, is_fenced=False), draft.changes)


def store_ends(view: View, attempt: str, ends: Mapping[OutputPartition, Position]) -> Decision[bool]:
    """Store the ends of the output topics, once all publishers are fenced; False if another recovery is in progress."""
    draft = Draft(view)
    if draft.compare(rows.RECOVERY, "attempt") != attempt.encode():
        return Decision(result=False, changes=draft.changes)
    for partition, end in ends.items():
        draft.set(rows.ENDS, partition.field, end.stored.encode())
    return Decision(result=True, changes=draft.changes)


Nonces = Mapping[str, bytes | None]  # local date, or rows.TOTAL -> nonce


def finish_rows(sealed: Collection[str], nonces: Collection[str]) -> Wanted:
    """Return what `finish` reads."""
    return {**RECOVERY_ROWS, rows.SEALED: sealed, rows.NONCES: nonces}


def finish(view: View, check: RecoveryCheck, sealed: Mapping[str, str], nonces: Nonces) -> Decision[bool]:
    """Finish a recovery, if the ledger has every record that was published before the fence, and no other.

    check    of the attempt
    sealed   policies with sealed days, each with its last sealed date: the summaries were restored before that date was
    nonces   of dates and of the total, with which the ledger had no unsent record: else a copy brought one back
    False if another recovery is in progress, the server went back or was replaced meanwhile, or something is missing.
    """
    draft, attempt = Draft(view), check.token.encode()
    if draft.compare(rows.RECOVERY, "token") == attempt:  # an earlier reply was lost
        return Decision(result=True, changes=draft.changes)
    if (
        any(draft.compare(rows.RECOVERY, each) != attempt for each in ("attempt", check.field))
        or not _is_of_this_server(draft)
        or not view.whole(rows.ENDS)
        or not all(has_adopted(draft, field, draft.compare(rows.ENDS, field)) for field in view.whole(rows.ENDS))
        or not all((draft.compare(rows.SEALED, name) or b"") >= through.encode() for name, through in sealed.items())
        or not all(draft.compare(rows.NONCES, field) == nonce for field, nonce in nonces.items())
    ):
        return Decision(result=False, changes=draft.changes)
    for field, value in zip(("token", *_SERVER), (attempt, *_server(draft)), strict=True):
        draft.set(rows.RECOVERY, field, value)
    for field in (*_ATTEMPT, "kept"):
        draft.set(rows.RECOVERY, field, None)
    draft.delete(rows.ENDS)
    return Decision(result=True, changes=draft.changes)


def has_adopted(draft: Draft, partition: str, end: bytes | None) -> bool:
    """Return whether the ledger has adopted an output partition (`topic/partition`) up to an end. Raises DamagedRow."""
    if end is None:
        return False
    known, last = draft.compare(rows.ADOPTED, partition), position_of(rows.ENDS, end)
    if known is None:
        return False
    adopted = position_of(rows.ADOPTED, known)
    return adopted.topic_id == last.topic_id and adopted.offset >= last.offset


def position_of(key: str, stored: bytes) -> Position:
    """Parse a stored position. Raises DamagedRow."""
    topic_id, _, offset = text_of(key, stored).rpartition(":")
    return Position(topic_id, number_of(key, offset.encode()))


def positions(view: View, key: str) -> dict[OutputPartition, Position]:
    """Return the positions that a row has, such as ADOPTED. Raises DamagedRow, Unread."""
    return {output_partition_of(key, field): position_of(key, value) for field, value in view.whole(key).items()}


def output_partition_of(key: str, field: str) -> OutputPartition:
    """Parse `topic/partition`. Raises DamagedRow."""
    topic, _, partition = field.rpartition("/")
    return OutputPartition(topic, number_of(key, partition.encode()))


def _server(draft: Draft) -> list[bytes]:
    return [draft.compare(rows.SERVER, each) or b"" for each in _SERVER]


def _is_of_this_server(draft: Draft) -> bool:
    """Return whether the recovery in progress began on this server process, with this replication history."""
    return [draft.compare(rows.RECOVERY, each) for each in _ATTEMPT[1:]] == _server(draft)
