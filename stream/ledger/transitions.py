"""Policy transitions of a domain: each policy's next policy and its first local date, which every commit compares.

Every budget record of the next policy contains the transition too, so ledger recovery restores a lost one from
`hats.budget`.    [decisions/0008]
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hatcast.stream.ledger import rows
from hatcast.stream.ledger.recovery import RecoveryCheck, require
from hatcast.stream.ledger.view import DamagedRow, Decision, Draft, View, text_of


@dataclass(frozen=True, slots=True)
class NextPolicy:
    """The policy that replaces another, and its first local date."""

    from_date: str
    name: str

    @property
    def stored(self) -> str:
        """Text of the transition in a ledger."""
        return f"{self.from_date} {self.name}"

    @staticmethod
    def of(stored: bytes) -> "NextPolicy":
        """Parse a stored transition. Raises DamagedRow."""
        from_date, space, name = text_of(rows.NEXT_POLICIES, stored).partition(" ")
        if not space or " " in name:
            raise DamagedRow(rows.NEXT_POLICIES)
        return NextPolicy(from_date, name)


@dataclass(frozen=True, slots=True)
class AlreadyBegun:
    """The policy to be replaced has already released a date of the next policy; `last` is its last date."""

    last: str


def claim(view: View, replaced: str, from_date: str, name: str) -> Decision[NextPolicy | AlreadyBegun]:
    """Store a policy's next policy unless one is stored; return the stored one.

    AlreadyBegun if the replaced policy has released a date of the next policy.
    """
    draft = Draft(view)
    stored = draft.compare(rows.NEXT_POLICIES, replaced)
    if stored is not None:
        return Decision(NextPolicy.of(stored), draft.changes)
    last = draft.compare(rows.LAST, replaced)
    if last is not None and last >= from_date.encode():
        return Decision(AlreadyBegun(text_of(rows.LAST, last)), draft.changes)
    ours = NextPolicy(from_date, name)
    draft.set(rows.NEXT_POLICIES, replaced, ours.stored.encode())
    return Decision(ours, draft.changes)


def restore_next_policy(draft: Draft, replaced: str, ours: NextPolicy) -> None:
    """Restore a policy's next policy, unless one is stored."""
    draft.compare(rows.NEXT_POLICIES, replaced)
    if draft.get(rows.NEXT_POLICIES, replaced) is None:
        draft.set(rows.NEXT_POLICIES, replaced, ours.stored.encode())


def restore_next_policies(view: View, check: RecoveryCheck, next_policies: Mapping[str, NextPolicy]) -> Decision[None]:
    """Restore policy transitions that the ledger lacks. Raises RecoveryEnded."""
    draft = Draft(view)
    require(draft, check)
    for replaced, ours in next_policies.items():
        restore_next_policy(draft, replaced, ours)
    return Decision(None, draft.changes)
