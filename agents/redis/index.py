"""The index of a partition: the fields of its state that count what is stored beside it.

The keys of HATs and chunks follow from it. While a Redis Cluster moves a slot, keys that a script does not
declare look absent to it. So every script declares all of its keys, and learns or compares whether they still follow
from the index; if they do not, the caller reads the index again.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.errors import Damaged
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.stored_values import date_of, number_of, parsing, slot_of, users_of
from hatcast.stream.readings.reading import Outcome


@dataclass(slots=True)
class Index:
    """What a partition's state counts.

    ends       `date/slot` -> end (ms UTC)
    cells      `date/slot` -> number of cells with contributions
    days       date -> users; of a horizon its first date
    outcomes   outcome -> records
    journal    number of blocks
    """

    ends: dict[str, int] = field(default_factory=dict)
    cells: dict[str, int] = field(default_factory=dict)
    days: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    journal: int = 0


def index_of(key: str, state: Mapping[bytes, bytes]) -> Index:
    """Return the index of a state. Raises Damaged."""
    index = Index()
    for name, value in state.items():
        match name.partition(b":"):
            case b"slot", _, slot:
                end, _, cells = value.partition(b" ")
                index.ends[slot_of(key, slot)] = number_of(key, end)
                index.cells[slot.decode()] = number_of(key, cells)
            case b"day", _, date:
                index.days[date_of(key, date)] = users_of(key, value)
            case b"outcome", _, outcome:
                with parsing(key):
                    index.outcomes[Outcome(outcome.decode()).value] = number_of(key, value)
            case b"journal", _, _:
                index.journal = number_of(key, value)
    return index


def next_nonce() -> str:
    """Return a nonce for the next state of a partition.

    Random, not a counter: a Redis that went back in time would count to the same number again, with other rows.
    """
    return secrets.token_hex(16)


async def read_counted(
    redis: AnyRedis, partitions: Sequence[PartitionKeys], counted: str, key_of: Callable[[PartitionKeys], str]
) -> list[dict[bytes, bytes]]:
    """Return a hash of each partition. Raises Damaged if it has not as many entries as the state counts.

    counted   field of the state whose last word is that number; without the field there are none
    """
    found: dict[int, dict[bytes, bytes]] = {}
    while left := [keys for keys in partitions if keys.partition not in found]:
        async with redis.pipeline(transaction=False) as pipe:
            for keys in left:
                pipe.hmget(keys.state, [counted, "nonce"])
                pipe.hgetall(key_of(keys))
                pipe.hget(keys.state, "nonce")
            answers = await pipe.execute()
        for keys, (entry, before), entries, after in zip(left, answers[::3], answers[1::3], answers[2::3], strict=True):
            if len(entries) == number_of(keys.state, (entry or b"0").rpartition(b" ")[2]):
                found[keys.partition] = entries
            elif before == after:
                raise Damaged(key_of(keys))
    return [found[keys.partition] for keys in partitions]
