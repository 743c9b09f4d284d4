"""Replies of the ledger's scripts: committed records, and the numbers and reservations of a day."""

from collections.abc import Sequence
from typing import Any, Final

from hatcast.agents.redis.errors import REJECTIONS
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.proposals import Committed

_QUERY: Final = b"query:"


def kind_of(reserved: Reserved) -> str:
    """Return the arguments of commit.lua about a reservation."""
    return "spent" if reserved.is_spent else "required" if reserved.is_required else ""


def committed_of(answers: Sequence[Any], seen: int) -> tuple[list[Committed], int]:
    """Return the replies of commit.lua or answer.lua, and the number of the domain's commits.

    seen   the number that was known before
    Raises the error of the first reply that rejects its proposal.
    """
    for answer in answers:
        if (rejection := REJECTIONS.get(answer[0])) is not None:
            raise rejection
    committed = [Committed(record, mark == b"1", how == b"committed") for how, record, mark, _ in answers]
    return committed, max([seen, *(int(commits) for *_, commits in answers)])


def numbers_of(flat: Sequence[bytes]) -> dict[str, int]:
    """Return the integer fields of a day's ledger, from a reply of fields and values."""
    fields = zip(flat[::2], flat[1::2], strict=True)
    return {field.decode(): int(value) for field, value in fields if not field.startswith(_QUERY)}


def policies_of(flat: Sequence[bytes]) -> list[str]:
    """Return the policies that have charged, from the fields of a day's ledger."""
    return sorted(field.decode().removeprefix("cost:") for field in flat[::2] if field.startswith(b"cost:"))


def queries_of(flat: Sequence[bytes]) -> dict[str, dict[str, Reserved]]:
    """Return policy -> query -> reservation, from the fields of a day's ledger."""
    found: dict[str, dict[str, Reserved]] = {}
    for name, value in zip(flat[::2], flat[1::2], strict=True):
        if name.startswith(_QUERY):
            _, policy, query = name.decode().split(":")
            places, _, epsilon = value.partition(b"x")
            found.setdefault(policy, {})[query] = Reserved(int(places), int(epsilon))
    return found
