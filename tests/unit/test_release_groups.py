"""Groups of batches that are published together, transactions that run at once, and draws one batch ahead."""

import asyncio
import gc
from contextlib import aclosing
from dataclasses import dataclass
from typing import ClassVar

import pytest

from hatcast.agents.release.batching import MAX_BATCH, groups_of, one_ahead, sends_of
from hatcast.agents.release.kind import Due


@dataclass(frozen=True, slots=True)
class Item(Due):
    max_users: ClassVar[int] = 1_000


def items(number: int, date: str, users: int = 1) -> list[Item]:
    return [Item(f"{date}/{each}", "cell", date, users) for each in range(number)]


def test_the_first_batch_is_published_alone_and_at_most_four_batches_together() -> None:
    due = items(20 * MAX_BATCH, "2022-01-02")
    groups = list(groups_of(due))
    assert [len(group) for group in groups] == [1, 2, 4, 4, 4, 4, 1]
    assert [item for group in groups for batch in group for item in batch] == due


def test_a_group_has_one_date() -> None:
    first, second = items(2 * MAX_BATCH, "2022-01-02"), items(MAX_BATCH, "2022-01-03")
    assert [[batch[0].date for batch in group] for group in groups_of([*first, *second])] == [
        ["2022-01-02"],
        ["2022-01-02"],
        ["2022-01-03"],
    ]


def test_large_hats_are_published_together_in_fours_at_most() -> None:
    assert [len(group) for group in groups_of(items(9, "2022-01-02", users=5_000))] == [1, 2, 4, 2]


def test_of_a_release_partition_one_transaction_runs_at_a_time_and_of_sixteen_at_once() -> None:
    records = {r: list(range(MAX_BATCH + 1 if r == 3 else 1)) for r in reversed(range(20))}
    sends = list(sends_of(records))
    assert [sorted(each) for each in sends] == [list(range(16)), [3], list(range(16, 20))]
    assert max(len(part) for send in sends for part in send.values()) == MAX_BATCH
    assert [number for send in sends for number in send.get(3, [])] == records[3]


def test_without_records_nothing_is_sent() -> None:
    assert list(sends_of({})) == []


async def never_ends() -> None:
    await asyncio.Event().wait()


async def test_one_call_runs_ahead_and_no_more() -> None:
    begun: list[int] = []
    seen: list[tuple[int, list[int]]] = []

    async def call(number: int) -> int:
        begun.append(number)
        await asyncio.sleep(0)
        return number

    async with aclosing(one_ahead(call, range(4))) as results:
        async for result in results:
            for _ in range(10):  # the next call could end, and another one begin
                await asyncio.sleep(0)
            seen.append((result, begun.copy()))
    assert seen == [(0, [0, 1]), (1, [0, 1, 2]), (2, [0, 1, 2, 3]), (3, [0, 1, 2, 3])]


async def test_a_failed_call_is_raised_after_the_results_before_it() -> None:
    async def call(number: int) -> int:
        if number == 1:
            raise KeyError(number)
        return number

    async with aclosing(one_ahead(call, range(3))) as results:
        assert await anext(results) == 0
        with pytest.raises(KeyError):
            await anext(results)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_call_that_nobody_waits_for_is_ended_without_a_word(
    *, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[int] = []

    async def call(number: int) -> int:
        if number == 0:
            return number
        try:
            if fails:
                raise KeyError(number)
            await never_ends()
        finally:
            ended.append(number)
        return number

    async with aclosing(one_ahead(call, range(3))) as results:
        assert await anext(results) == 0
        await asyncio.sleep(0)
    gc.collect()  # asyncio complains of a failure that nobody has read once it is collected
    assert ended == [1]
    assert caplog.records == []
