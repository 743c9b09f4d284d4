"""`hatcast feed gtfs-rt` against a real HTTP server and a real Kafka.
`hatcast feed siri` against a real HTTP server and a real Kafka: deliveries in XML and JSON.
"""

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from google.transit.gtfs_realtime_pb2 import FeedMessage

from hatcast.agents.recordings.files import open_records
from hatcast.agents.sources import polling
from hatcast.agents.sources.polling import Poll, PollSource
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import FORMATS
from tests.integration.bridging import SECONDS, Sent, arrived, bridge, stopped, until
from tests.integration.harness import Pipeline
from tests.services import data
from tests.siri_deliveries import activity, delivery, in_json

Answer = Callable[[web.Request], web.StreamResponse]


class Agency:
    """A server of polls: each request is kept, and answered by the next answer; the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[web.Request] = []
        self._answers = list(answers)
        self.url = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Agency"]:
        application = web.Application()
        application.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(application)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/positions.pb"
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        return (self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])(request)


def said(body: bytes, tag: str) -> Answer:
    """A poll with an ETag: 304 to whoever has it already."""

    def answer(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304)
        return web.Response(body=body, headers={"ETag": tag, "Last-Modified": "Tue, 01 Sep 2020 08:00:00 GMT"})

    return answer


def status(code: int, **headers: str) -> Answer:
    return lambda _: web.Response(status=code, headers=headers)


def poll(**times: int) -> bytes:
    """A poll with a reading of each vehicle."""
    message = FeedMessage()
    message.header.gtfs_realtime_version = "2.0"
    for vehicle, time in times.items():
        entity = message.entity.add(id=vehicle)
        entity.vehicle.vehicle.id = vehicle
        entity.vehicle.timestamp = time
        entity.vehicle.position.latitude, entity.vehicle.position.longitude = -33.8, 151.0
        entity.vehicle.position.speed = 7.5
    return bytes(message.SerializeToString())


def asking(agency: Agency, every_s: float = 0.05, key: tuple[str, str] | None = None) -> PollSource:
    return PollSource(Poll("gtfs-rt", agency.url, every_s, key))


async def test_recorded_polls_arrive_once_each_whatever_is_repeated(pipeline: Pipeline) -> None:
    paths = [data.recording(f"gtfs_rt/GTFS_VP2020-09-01_08_0{minute}.pb.gz") for minute in (0, 1)]
    with open_records(paths, FORMATS["gtfs-rt"]) as read:
        expected: Counter[Sent] = Counter(
            {(each.reading.vehicle.strip(), each.reading.time) for each in read() if each.reading is not None}  # type: ignore[misc]  # a time of GTFS-RT is an integer
        )
        undecodable = sum(each.reading is None for each in read())
    first, second = (gzip.decompress(path.read_bytes()) for path in paths)

    answers = [said(first, '"1"'), said(first, '"1"'), said(second, '"2"'), said(second, '"2"')]
    async with (
        Agency(*answers).open() as agency,
        bridge(pipeline, "gtfs-rt", lambda: asking(agency), polled=True) as task,
    ):
        found = await arrived(pipeline, task, lambda found: found.keys() >= expected.keys())
        summary = await stopped(task)
    assert found == expected
    assert summary.records == expected.total()
    assert summary.repeated > 0  # the second poll holds vehicles of the first whose time has not moved
    assert summary.undecodable == undecodable
    assert [request.headers.get("If-None-Match") for request in agency.asked[:4]] == [None, '"1"', '"1"', '"2"']
    assert agency.asked[1].headers["If-Modified-Since"] == "Tue, 01 Sep 2020 08:00:00 GMT"


async def test_a_server_in_trouble_is_asked_again_and_what_is_no_poll_is_not_taken(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "BODY_BYTES_MAX", 10_000)
    broken = lambda _: web.Response(body=b"\x1f\x8b not gzip", headers={"Content-Encoding": "gzip"})  # noqa: E731 - one line, used once
    answers = [
        status(500),
        said(bytes(20_000), '"too large"'),
        broken,
        said(b"\xff garbage", '"garbage"'),
        said(poll(a=1), '"1"'),
        status(503),
        said(poll(a=1, b=2), '"2"'),
    ]

    async with (
        Agency(*answers).open() as agency,
        bridge(pipeline, "gtfs-rt", lambda: asking(agency), polled=True) as task,
    ):
        found = await arrived(pipeline, task, lambda found: len(found) == 2)
        summary = await stopped(task)
    assert found == Counter({("a", 1_000): 1, ("b", 2_000): 1})
    assert (summary.losses, summary.undecodable, summary.repeated) == (5, 0, 1)
    # Nothing that was not taken whole is said to be known.
    assert [request.headers.get("If-None-Match") for request in agency.asked[:5]] == [None] * 5


async def test_a_key_goes_where_it_was_asked_for_and_is_not_taken_along_to_another_address(pipeline: Pipeline) -> None:
    async with (
        Agency(said(poll(a=1), '"1"')).open() as elsewhere,
        Agency(said(poll(a=1), '"1"'), status(302, Location=elsewhere.url)).open() as agency,
        bridge(pipeline, "gtfs-rt", lambda: asking(agency, key=("X-Key", "s3cret")), polled=True) as task,
    ):
        await until(lambda: len(agency.asked) >= 3, task)
        await stopped(task)
    assert {request.headers["X-Key"] for request in agency.asked} == {"s3cret"}
    assert elsewhere.asked == []


@pytest.mark.parametrize(("code", "says"), [(401, "--key-header"), (403, "the key"), (404, "address")])
async def test_a_server_that_will_never_answer_ends_the_bridge_in_one_line(
    code: int, says: str, pipeline: Pipeline
) -> None:
    with pytest.raises(HatcastError) as refusal:
        async with (
            Agency(status(code)).open() as agency,
            bridge(pipeline, "gtfs-rt", lambda: PollSource(Poll("gtfs-rt", agency.url + "?key=s3cret", 0.05))) as task,
        ):
            await asyncio.wait_for(task, SECONDS)
    assert says in str(refusal.value)
    assert "s3cret" not in str(refusal.value)


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
