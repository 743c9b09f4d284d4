"""Law of the ledgers: a clustering is charged once, beside the releases, and in Redis as in a file."""

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.policy_state import ClusteringStore
from hatcast.stream.errors import HatcastError
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.day import DayLedger, Reserved, Total
from hatcast.stream.ledger.rejections import DaySealed, Exhausted, Unrecovered
from hatcast.stream.ledger.summary import DaySummary, fits
from hatcast.stream.units import NANO
from tests.integration.recovering import guard_of_all
from tests.other_tzdata import ZONE, use_other_tables
from tests.replayed import policy_of
from tests.services import RedisServer

DATES: Final = ("2022-01-02", "2022-01-03")
PRIVACY: Final = {
    "epsilon": 1.0,
    "max_hats_per_day": 5,
    "daily_limit": 7.0,
    "total_limit": 10.0,
    "unit": "user",
}
Asked = tuple[str, str, int]
"""(query name, date, epsilon in 1e-9)"""

ASKED = st.lists(
    st.tuples(st.sampled_from(["c1", "c2", "c3"]), st.sampled_from(DATES), st.sampled_from([1, 2 * NANO, 4 * NANO])),
    max_size=8,
)


def told(day: DaySummary) -> Any:
    return day.epsilon_user_day, day.sequence, dict(day.levels), day.total, dict(day.queries), day.limit


def in_a_file(folder: Path, asked: list[Asked]) -> tuple[list[bool], list[Any]]:
    path = folder / f"{uuid.uuid4().hex}.ledger"
    decided = []
    for query, date, epsilon in asked:
        with open_ledger(path, policy_of(privacy=PRIVACY)) as ledger:
            decided.append(ledger.reserve_clustering(query, date, epsilon))
    with open_ledger(path, policy_of(privacy=PRIVACY)) as ledger:
        return decided, [told(ledger.summary(date)) for date in DATES]


async def in_redis(url: str, asked: list[Asked]) -> tuple[list[bool], list[Any]]:
    domain, policy = f"t-clusterings-{uuid.uuid4().hex[:8]}", policy_of(privacy=PRIVACY)
    async with Redis.from_url(url) as redis:
        store, ledger = ClusteringStore(redis, domain, policy), LedgerStore(redis, domain, policy)
        with pytest.raises(Unrecovered):
            await store.reserve("c0", DATES[0], 1)
        await guard_of_all(redis, domain, policy.name)
        decided = []
        for query, date, epsilon in asked:
            try:
                await store.reserve(query, date, epsilon)
                assert not (await store.reserve(query, date, epsilon)).new
                decided.append(True)
            except Exhausted:
                decided.append(False)
        days = [told(await ledger.summary(date)) for date in DATES]
        await redis.hset(DomainKeys(domain).row(rows.SEALED), policy.name, DATES[1])
        with pytest.raises(DaySealed):
            await store.reserve("late", DATES[1], 1)
        await redis.delete(*[key async for key in redis.scan_iter(f"{{{domain}}}*")])
    return decided, days


def in_the_model(asked: list[Asked]) -> tuple[list[bool], dict[str, dict[str, Reserved]]]:
    """7 on a day and 10 on all days; the same name on a day is the same clustering."""
    booked: dict[str, dict[str, Reserved]] = {date: {} for date in DATES}
    decided = []
    for query, date, epsilon in asked:
        if query not in booked[date]:
            spent = {day: sum(each.epsilon for each in of.values()) for day, of in booked.items()}
            if spent[date] + epsilon <= 7 * NANO and sum(spent.values()) + epsilon <= 10 * NANO:
                booked[date][query] = Reserved(1, epsilon)
        decided.append(query in booked[date])
    return decided, booked


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ASKED)
async def test_both_ledgers_charge_each_clustering_once_and_refuse_what_a_limit_leaves_no_room_for(
    redis_server: RedisServer, tmp_path: Path, asked: list[Asked]
) -> None:
    decided, booked = in_the_model(asked)
    of_file, of_redis = in_a_file(tmp_path, asked), await in_redis(redis_server.url, asked)
    for found in (of_file, of_redis):
        assert found[0] == decided
        for date, day in zip(DATES, found[1], strict=True):
            assert day[0] == sum(each.epsilon for each in booked[date].values())
            assert day[4] == booked[date]
            assert day[3].spent == sum(each.epsilon for of in booked.values() for each in of.values())
    assert of_file[1] == of_redis[1]


def test_a_clustering_takes_its_room_from_the_releases_of_the_day() -> None:
    """In the model of both: `fits` decides whether there is room for one more release."""
    policy, day, total = policy_of(privacy=PRIVACY), DayLedger(), Total()
    assert day.has_room(policy, 7 * NANO, total)
    assert not day.has_room(policy, 7 * NANO + 1, total)
    day.reserve_if_room(policy, {"c": Reserved(1, 6 * NANO)}, total)
    summary = DaySummary(0, 0, day.cost, shared=False, limit=day.limit, sequence=1, levels=day.levels, total=total)
    assert fits(summary, policy, 1, {})
    assert not fits(replace(summary, queries={}), policy, 2, {})


async def test_a_date_takes_no_clustering_under_other_rules_than_the_domain_has_for_it_or_for_one_beside_it(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = f"t-clusterings-{uuid.uuid4().hex[:8]}"
    one, other = (policy_of(name=name, timezone=ZONE, privacy=PRIVACY) for name in ("one", "other"))

    async with Redis.from_url(redis_server.url) as redis:
        await guard_of_all(redis, domain, one.name)
        assert (await ClusteringStore(redis, domain, one).reserve("c", DATES[0], 1)).new
        assert (await ClusteringStore(redis, domain, other).reserve("c", DATES[0], 1)).new
        use_other_tables(monkeypatch)
        late = ClusteringStore(redis, domain, policy_of(name="late", timezone=ZONE, privacy=PRIVACY))
        for date in DATES:
            with pytest.raises(HatcastError, match=rf"^{DATES[0]} in {ZONE} was opened as"):
                await late.reserve("c", date, 1)
        assert not (await LedgerStore(redis, domain, one).summary(DATES[1])).queries
        assert (await LedgerStore(redis, domain, one).summary(DATES[0])).epsilon_user_day == 2
    redis_server.delete(f"{{{domain}}}*")
