"""Live sources as people have them: servers that negotiate, answers that are no polls, ids in MQTT topics."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web

from hatcast.agents.sources.polling import Poll, PollSource
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.readings.formats import FORMATS, Columns, FormatChoice
from hatcast.stream.readings.reading import Reading
from tests.integration.bridging import arrived, bridge, stopped, until
from tests.integration.harness import Pipeline
from tests.integration.test_bridge_gtfs_rt import Agency, Answer, asking, poll, said
from tests.wild import config, policy_in

NOT_POLLS = {
    "html": (b"<html>maintenance</html>", "text/html", "text/html, not a GTFS-RT poll"),
    "json": (b'{"statusCode":429,"message":"SECRET"}', "application/json", "application/json, not a GTFS-RT poll"),
    "empty": (b"", "application/octet-stream", "empty"),
}


def answer(body: bytes, kind: str) -> Answer:
    return lambda _: web.Response(body=body, content_type=kind)


def negotiated(request: web.Request) -> web.Response:
    """JSON, unless protobuf is asked for first."""
    if request.headers.get("Accept", "").startswith("application/x-protobuf"):
        return web.Response(body=poll(a=1), content_type="application/x-protobuf")
    return web.json_response({"entity": []})


async def test_f12_the_command_asks_for_protobuf_first(pipeline: Pipeline) -> None:
    async with Agency(negotiated).open() as agency:
        done = await asyncio.to_thread(pipeline.hatcast, "feed", "gtfs-rt", agency.url, "--for", "3", "--json")
    assert (done.code, done.json["records"]) == (0, 1)


@pytest.mark.parametrize("kind", sorted(NOT_POLLS))
async def test_f16_an_answer_that_is_no_poll_is_a_loss_with_its_kind(pipeline: Pipeline, kind: str) -> None:
    body, content_type, reason = NOT_POLLS[kind]

    async with (
        Agency(answer(body, content_type)).open() as agency,
        bridge(pipeline, "gtfs-rt", lambda: asking(agency), polled=True) as task,
    ):
        await until(lambda: len(agency.asked) > 1, task)  # the first answer is read
        summary = await stopped(task)
        assert summary.never_reached == f"gtfs-rt at {agency.url} was never reached (the answer is {reason})"
    assert (summary.records, summary.undecodable) == (0, 0)
    assert summary.losses > 0


async def test_f16_after_a_maintenance_page_the_next_poll_is_read(pipeline: Pipeline) -> None:
    answers = answer(*NOT_POLLS["html"][:2]), said(poll(), '"0"'), said(poll(a=1), '"1"')
    async with (
        Agency(*answers).open() as agency,
        bridge(pipeline, "gtfs-rt", lambda: asking(agency), polled=True) as task,
    ):
        assert await arrived(pipeline, task, bool) == Counter({("a", 1_000): 1})
        assert (await stopped(task)).never_reached == ""


@pytest.mark.parametrize(
    ("body", "is_one"),
    [
        (b"<html>down</html>", False),
        (b'{"statusCode":429}', False),
        (b"", False),
        (b'<?xml version="1.0"?><s:Siri xmlns:s="x"></s:Siri>', True),
        ("<?xml version='1.0' encoding='utf-16'?><Siri/>".encode("utf-16"), True),
        (b'{"Siri":{"ServiceDelivery":{"VehicleMonitoringDelivery":[]}}}', True),
        (b'{"Siri":{"ServiceDelivery":{"ErrorCondition":{}}}}', True),
    ],
)
def test_f16_siri_knows_its_deliveries(body: bytes, *, is_one: bool) -> None:
    assert FORMATS["siri"].is_message(body) == is_one


def test_f24_an_id_that_only_the_topic_has_is_a_column(tmp_path: Path) -> None:
    columns = Columns({"vehicle": "topic:2"}, unit="km/h", where={"topic:1": "buses"})
    feed = policy_format(FormatChoice("jsonl", columns), policy_in(config(tmp_path)), live=True)
    body = b'{"time":"2024-05-06T10:00:00Z","lat":52.5,"lon":13.4,"speed":20,"topic:2":"other"}'
    read = Reading("B7", 1714989600000, 52.5, 13.4, 20.0, "km/h")
    assert [feed.decode(each) for each in feed.split(body, "buses/B7/position")] == [read]
    assert [feed.decode(each) for each in feed.split(b"[%b,{}]" % body, "buses/B7")] == [read, None]
    assert feed.split(body, "trams/7") == []
    assert [feed.decode(each) for each in feed.split(b"garbage", "buses/B7")] == [None]


async def test_f16_siri_over_http_names_what_it_got(pipeline: Pipeline) -> None:
    async with Agency(answer(b"<html/>", "text/html")).open() as agency:
        connect = lambda: PollSource(Poll("siri", agency.url, 0.05))  # noqa: E731 - one line, used once
        async with bridge(pipeline, "siri", connect, polled=True) as task:
            await until(lambda: len(agency.asked) > 1, task)
            summary = await stopped(task)
            assert summary.never_reached.endswith("(the answer is text/html, not a SIRI delivery)")


async def test_f16_the_command_exits_1(pipeline: Pipeline) -> None:
    async with Agency(answer(b"<html/>", "text/html")).open() as agency:
        done = await asyncio.to_thread(pipeline.hatcast, "feed", "gtfs-rt", agency.url, "--for", "2")
    assert done.code == 1
    assert "was never reached (the answer is text/html, not a GTFS-RT poll)" in done.err
