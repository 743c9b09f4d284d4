"""Unit `user` on real services: what all days of a vehicle may cost together, told wherever a budget is told."""

import asyncio
import json
from pathlib import Path

from hatcast.agents.cli.budget import read_budget
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.stream.units import DAY_MS
from tests.integration.harness import open_pipeline
from tests.integration.readings import NOON_MS, Sample, open_stores, store_closed, traffic
from tests.integration.test_release import finish
from tests.services import KafkaServer, RedisServer

DATES = ("2022-01-02", "2022-01-03", "2022-01-04")


def test_when_all_days_have_spent_the_total_limit_every_further_hat_is_exhausted(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    # Three HATs a day; K = 2 of them cost a vehicle 2 a day: the third day may cost 1 of these 2.
    privacy = {"unit": "user", "total_limit": 5.0, "max_hats_per_day": 2, "daily_limit": 4.0}
    with open_pipeline(kafka, redis_server, tmp_path, "total", {"policy": {"privacy": privacy}}) as pipeline:
        ensure_topics(pipeline.settings)
        samples = [
            Sample(each.vehicle, each.time_ms + day * DAY_MS, each.place, each.speed)
            for day in range(3)
            for each in traffic(1)
            if int(each.vehicle[-4:]) % 3 != each.place  # each vehicle in two of the three
        ]

        async def release() -> None:
            async with open_stores(pipeline) as stores:
                await store_closed(stores, pipeline.settings.policy, samples, NOON_MS + 3 * DAY_MS)
                await finish(pipeline, stores)

        asyncio.run(release())
        before = pipeline.published()
        records = [json.loads(values[0]) for values in before.values()]
        statuses = {date: sorted(each["status"] for each in records if each["date"] == date) for date in DATES}
        assert statuses == {date: ["released"] * 3 for date in DATES[:2]} | {
            DATES[2]: ["budget_exhausted", "budget_exhausted", "released"]
        }
        budgets = pipeline.budget_records()
        newest = budgets[f"{pipeline.name}/{DATES[2]}"]
        assert (newest["epsilon_user_day"], newest["total"], newest["total_limit"]) == (1.0, 5.0, 5.0)
        assert [each["total"] for each in asyncio.run(read_budget(pipeline.settings))[0]] == [5.0] * 3
        told = pipeline.hatcast("budget", "show").out
        assert "all days of a vehicle together: 5 of 5" in told
        assert "can still cost 0 (all days together have no more left)" in " ".join(told.split())
        status = pipeline.status()
        assert (status["total"], status["total_limit"]) == (5.0, 5.0)

        # A Redis that has lost it has it back from the topics before anything else is released.
        redis_server.delete(f"{{{pipeline.name}}}*")
        redis_server.delete(f"{{{pipeline.name}:*")
        asyncio.run(release())
        after = pipeline.published()
        assert {name: set(values) for name, values in after.items()} == {n: set(values) for n, values in before.items()}
        assert pipeline.status()["total"] == 5.0
