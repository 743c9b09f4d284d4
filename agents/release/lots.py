"""What releases of means and of answers share: how they are cut into lots, and sent by release partition."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from hatcast.agents.kafka.producers import ProducerGone
from hatcast.agents.redis.ledger import Committed


class HasUsers(Protocol):
    """Something due, and how many users' rows it takes to load it."""

    @property
    def users(self) -> int:
        """0 or more."""
        ...


D = TypeVar("D", bound=HasUsers)
T = TypeVar("T")


def lots_of(due: Sequence[D], date_of: Callable[[D], str], most: int, most_users: int) -> Iterator[list[D]]:
    """In order, cut at dates, at `most` and at `most_users`; what has more users than that comes alone."""
    lot: list[D] = []
    users = 0
    for one in due:
        full = len(lot) >= most or users + one.users > most_users
        if lot and (full or date_of(one) != date_of(lot[0])):
            yield lot
            lot, users = [], 0
        lot.append(one)
        users += one.users
    if lot:
        yield lot


async def publish_by_owner(
    records: Mapping[T, Committed],
    owner_of: Callable[[T], int],
    most: int,
    publish: Callable[[int, Sequence[tuple[T, Committed]]], Awaitable[None]],
) -> None:
    """Publish the records that are not published, in order, by release partition, at most so many at once.

    Raises ProducerGone where another worker has taken over one of these: then those of the others are published, so that
    two policies do not take turns for each.
    """
    by_producer: dict[int, list[tuple[T, Committed]]] = {}
    for one, record in records.items():
        if not record.published:
            by_producer.setdefault(owner_of(one), []).append((one, record))
    taken: ProducerGone | None = None
    for release_partition, waiting in sorted(by_producer.items()):
        try:
            for at in range(0, len(waiting), most):
                await publish(release_partition, waiting[at : at + most])
        except ProducerGone as error:
            taken = error
    if taken is not None:
        raise taken
