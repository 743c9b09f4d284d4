"""What commands tell of queries over days, on real services."""

import asyncio
from pathlib import Path

from hatcast.agents.cli.budget import read_budget
from hatcast.agents.cli.budget_explained import figures
from hatcast.agents.kafka.topics import ensure_topics
from tests.integration.answering import ANSWERS, answering
from tests.integration.days import DATES, END_MS, EPSILON, POLICY, days
from tests.integration.harness import open_pipeline
from tests.integration.readings import open_stores, store_closed
from tests.services import KafkaServer, RedisServer


async def test_budget_and_tail_tell_what_queries_have_reserved_and_answered(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "told", {"policy": POLICY}) as pipeline:
        ensure_topics(pipeline.settings)

        async def release() -> None:
            async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
                await store_closed(stores, pipeline.settings.policy, days(), END_MS)
                await releaser.round(asyncio.Event())

        await release()
        told, _ = await read_budget(pipeline.settings)
        assert told == [pipeline.budget_records()[f"{pipeline.name}/{date}"] for date in DATES]
        rows = [line.split() for line in pipeline.hatcast("budget", "show").out.splitlines()]
        for date in DATES:
            assert [row[2:5] for row in rows if row and row[0] == date] == [["4e+06", "1.2e+08", "1.24e+08"]]
        assert ["mean", DATES[0], "to", DATES[2], "1e+06", "4e+07", "1.2e+08", "3", "of", "3", "days"] in rows
        assert figures(pipeline.settings.policy, 3, told)["ledger"] == {
            "days": 3,
            "spent": 3 * 124 * EPSILON,
            "most": 124 * EPSILON,
        }
        lines = pipeline.hatcast("tail", "--queries", "--from-beginning", "--max", ANSWERS).out.splitlines()
        assert sum(" mean " in line for line in lines) == 4
        assert all(" km/h " in line or " vehicles/day " in line for line in lines), lines
