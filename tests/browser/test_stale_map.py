"""The map while no Kafka broker answers, in a browser: since when, and that a new record ends it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from hatcast.agents.kafka.topics import ensure_topics
from tests.browser.conftest import OpenPage, picture
from tests.browser.day import hour_of
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.test_display import status_of, url_of
from tests.services import KafkaServer, Record, RedisServer


@pytest.fixture
def pipeline(breakable_kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    with open_pipeline(breakable_kafka, redis_server, tmp_path, "stale", {"kafka": {"partitions": 3}}) as made:
        ensure_topics(made.settings)
        yield made


def test_the_page_says_since_when_nothing_comes_and_goes_on_by_itself(pipeline: Pipeline, open_page: OpenPage) -> None:
    def publish(hour: int) -> None:
        topic = pipeline.settings.topics.means
        pipeline.kafka.produce(topic, [Record(each, b"id") for each in hour_of(hour)])

    publish(0)
    display = pipeline.start("display", "--port", 0)
    pipeline.wait(lambda: bool(url_of(display)), "a map", display)
    page = open_page(url_of(display), viewport={"width": 390, "height": 844})
    chip, line = page.locator("#connection"), page.locator("#freshness")
    expect(chip).to_have_attribute("data-state", "live")
    expect(line).to_have_text("Newest record: less than a minute ago.")

    pipeline.kafka.stop()
    expect(chip).to_have_text("stale")
    since = status_of(display)["answered_at"]
    expect(line).to_contain_text(f"{since[11:16]} UTC")
    expect(line).to_contain_text("no Kafka broker answers. What you see was published before.")
    picture(page, "stale")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    pipeline.kafka.start()
    expect(chip).to_have_attribute("data-state", "live")
    publish(1)
    expect(page.locator("#slot-title")).to_have_text("Sun 2 Jan 2022, 10:00–11:00")
    expect(line).to_have_text("Newest record: less than a minute ago.")
