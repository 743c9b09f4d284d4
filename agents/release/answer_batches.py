"""What a round of answers to queries over days is made of: cut into lots that memory and one transaction can carry."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from hatcast.agents.redis.ledger import AnswerProposal
from hatcast.agents.release.lots import lots_of
from hatcast.stream.accounting.ledger import Reserved
from hatcast.stream.release.hats import Status
from hatcast.stream.release.queries import QueryPeriod, QueryRelease

ANSWERS: Final = 500  # committed together
_USERS: Final = 400_000  # of all days, loaded together: bounds memory; a larger cell is loaded alone


@dataclass(frozen=True, slots=True)
class DueAnswer:
    """A query about a cell whose period is over, and how many users, of all days, are kept for it."""

    release_id: str
    cell: str
    asked: QueryPeriod = field(compare=False)
    users: int = field(compare=False)


def batches_of(due: Sequence[DueAnswer]) -> Iterator[list[DueAnswer]]:
    """In order, cut at closing dates, at `ANSWERS` and at `_USERS`. Not at bytes: how many depends on speeds."""
    return lots_of(due, lambda one: one.asked.closing.date, ANSWERS, _USERS)


def by_asked(due: Iterable[DueAnswer]) -> Iterator[list[DueAnswer]]:
    """Those that are read together."""
    for _, group in groupby(due, lambda one: one.asked.key):
        yield list(group)


def answer_proposal_of(answer: QueryRelease, at_ms: int, release_partition: int) -> AnswerProposal:
    """Return what the ledger is asked to commit, by the owner of a release partition."""
    asked = answer.query_period
    return AnswerProposal(
        release_id=answer.release_id,
        date=answer.date,
        dates=asked.period.dates,
        query=asked.query.name,
        reserved=Reserved(asked.policy.most_hats, asked.query.epsilon_nano),
        record=answer.record(at_ms),
        exhausted=(answer.exhausted() if answer.status == Status.RELEASED else answer).record(at_ms),
        release_partition=release_partition,
    )
