"""Batches of a release round: HATs or answers, few enough for memory and one transaction."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar, Final, Protocol, TypeVar

from hatcast.agents.kafka.producers import ProducerGone
from hatcast.agents.redis.partition_state import FinalHat
from hatcast.agents.redis.proposals import AnswerProposal, Committed, Proposal
from hatcast.stream.accounting.ledger import Reserved
from hatcast.stream.release.hats import Release, Status
from hatcast.stream.release.queries import QueryPeriod, QueryRelease

MAX_HATS: Final = 500  # released together; a transaction has those of one release partition
MAX_ANSWERS: Final = 500  # committed together


class Due(Protocol):
    """A HAT or an answer that is due.

    max_users   of a batch, which is loaded at once: bounds memory
    """

    max_users: ClassVar[int]

    @property
    def date(self) -> str:
        """Local date; a batch has one."""
        ...

    @property
    def users(self) -> int:
        """Number of users' rows to load, 0 or more."""
        ...


D = TypeVar("D", bound=Due)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DueRelease:
    """A final HAT that this worker releases, and its number of users.

    released_at_ms   ms UTC, if this public time is the only one that may be published; None: the time of the commit
    """

    max_users: ClassVar[int] = 200_000

    hat: FinalHat
    release_id: str
    users: int
    released_at_ms: int | None = None

    @property
    def date(self) -> str:
        """The local date that the HAT is charged to."""
        return self.hat.slot.partition("/")[0]


@dataclass(frozen=True, slots=True)
class DueAnswer:
    """A query about a cell whose period is over, and the number of users, of all days, retained for it."""

    max_users: ClassVar[int] = 400_000

    release_id: str
    cell: str
    query_period: QueryPeriod = field(compare=False)
    users: int = field(compare=False)

    @property
    def date(self) -> str:
        """The local date of the period's closing slot."""
        return self.query_period.closing.date


def batches_of(due: Iterable[D], max_items: int) -> Iterator[list[D]]:
    """Cut into batches, in order: of one date, with at most `max_items` items and `max_users` users.

    An item with more users is a batch of its own. Not cut by bytes: their number depends on speeds.
    """
    batch: list[D] = []
    users = 0
    for item in due:
        full = len(batch) >= max_items or users + item.users > item.max_users
        if batch and (full or item.date != batch[0].date):
            yield batch
            batch, users = [], 0
        batch.append(item)
        users += item.users
    if batch:
        yield batch


def by_period(answers: Iterable[DueAnswer]) -> Iterator[list[DueAnswer]]:
    """Group consecutive answers that are loaded together: those of one query and period."""
    for _, group in groupby(answers, lambda answer: answer.query_period.key):
        yield list(group)


async def publish_by_partition(
    records: Mapping[T, Committed],
    release_partition_of: Callable[[T], int],
    max_items: int,
    publish: Callable[[int, Sequence[tuple[T, Committed]]], Awaitable[None]],
) -> None:
    """Publish the unpublished records, in order, by release partition, at most `max_items` at once.

    Raises ProducerGone if another worker has taken over a release partition, after the others are published: otherwise
    two policies would take turns for each.
    """
    by_partition: dict[int, list[tuple[T, Committed]]] = {}
    for item, record in records.items():
        if not record.published:
            by_partition.setdefault(release_partition_of(item), []).append((item, record))
    taken_over: ProducerGone | None = None
    for release_partition, pending in sorted(by_partition.items()):
        try:
            for start in range(0, len(pending), max_items):
                await publish(release_partition, pending[start : start + max_items])
        except ProducerGone as error:
            taken_over = error
    if taken_over is not None:
        raise taken_over


def proposal_of(release: Release, at_ms: int, release_partition: int) -> Proposal:
    """Return a release as proposed to the ledger by the owner of a release partition."""
    return Proposal(
        release_id=release.release_id,
        date=release.date,
        place=release.place,
        charge=release.charge,
        record=release.record(at_ms),
        exhausted=release.exhausted().record(at_ms),
        fineness=release.fineness,
        release_partition=release_partition,
    )


def answer_proposal_of(answer: QueryRelease, at_ms: int, release_partition: int) -> AnswerProposal:
    """Return an answer as proposed to the ledger by the owner of a release partition."""
    query_period = answer.query_period
    return AnswerProposal(
        release_id=answer.release_id,
        date=answer.date,
        dates=query_period.period.dates,
        query=query_period.query.name,
        reserved=Reserved(query_period.policy.most_hats, query_period.query.epsilon_nano),
        record=answer.record(at_ms),
        exhausted=(answer.exhausted() if answer.status == Status.RELEASED else answer).record(at_ms),
        release_partition=release_partition,
    )
