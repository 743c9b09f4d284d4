"""`hatcast feed siri` against a real HTTP server and a real Kafka: deliveries in XML and JSON."""

import asyncio
from collections import Counter

from hatcast.agents.sources.polling import Poll, PollSource
from tests.integration.bridging import SECONDS, arrived, bridge, stopped, until
from tests.integration.harness import Pipeline
from tests.integration.test_bridge_gtfs_rt import Agency, said, status
from tests.siri_deliveries import activity, delivery, in_json

TIMES = [f"2026-03-12T09:30:{second}+01:00" for second in (10, 25, 40)]


async def test_deliveries_arrive_once_each_whatever_is_repeated_and_errors_are_counted(pipeline: Pipeline) -> None:
    first, second, third = TIMES
    rejection = delivery("<ErrorCondition><OtherError/></ErrorCondition>").encode()
    laughs = b'<!DOCTYPE Siri [<!ENTITY a "b">]>' + delivery(activity()).encode()
    answers = [
        said(delivery(*(activity(VehicleRef=name, RecordedAtTime=first) for name in "ab")).encode(), '"1"'),
        said(rejection, '"2"'),
        status(503),
        said(laughs, '"3"'),
        said(
            delivery(
                activity(VehicleRef="a", RecordedAtTime=first),
                activity(VehicleRef="b", RecordedAtTime=second),
                activity(VehicleRef="c", Velocity=None),
            ).encode(),
            '"4"',
        ),
        said(b"\xef\xbb\xbf" + in_json(VehicleRef={"value": "d"}, RecordedAtTime=third), '"5"'),
    ]

    async with (
        Agency(*answers).open() as agency,
        bridge(pipeline, "siri", lambda: PollSource(Poll("siri", agency.url, 0.05)), polled=True) as task,
    ):
        found = await arrived(pipeline, task, lambda found: len(found) == 4)
        summary = await stopped(task)
    assert found == Counter({("a", first): 1, ("b", first): 1, ("b", second): 1, ("d", third): 1})
    assert (summary.losses, summary.undecodable, summary.repeated) == (1, 3, 1)


async def test_the_command_sends_a_delivery_of_a_file_server(pipeline: Pipeline) -> None:
    body = delivery(activity(VehicleRef="a", RecordedAtTime=TIMES[0])).encode()
    async with Agency(said(body, '"1"')).open() as agency:
        process = await asyncio.to_thread(pipeline.start, "feed", "siri", agency.url, "--every", "1s")
        await until(lambda: bool(agency.asked))
        async with asyncio.timeout(SECONDS):
            while pipeline.name not in await asyncio.to_thread(pipeline.kafka.topics) or not any(
                record.key == b"a" for record in await asyncio.to_thread(pipeline.kafka.read, pipeline.name)
            ):
                await asyncio.sleep(0.1)
        assert await asyncio.to_thread(process.terminate) == 0
    assert agency.asked[0].headers["Accept"].startswith("application/xml")
