"""What is found wrong about a topic, without a broker: brokers of other ages and with other rights too."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.settings import Settings, settings_of
from agents.topic_rules import TopicState, findings, output_topics, telemetry_topic
from tests.integration.tables import DEFAULTS, merged


def settings(**tables: Any) -> Settings:
    return settings_of(merged(merged(DEFAULTS, {"policy": {"name": "p"}}), tables), Path(), {})


def found(configs: Mapping[str, str], **tables: Any) -> dict[str, bool]:
    """Setting -> whether it breaks a promise, of telemetry with these settings."""
    given = settings(**tables)
    return {each.setting: each.breaks for each in findings(telemetry_topic(given), TopicState(8, configs), given)}


MADE = telemetry_topic(settings()).configs


def test_a_topic_as_hatcast_makes_it_is_as_it_should_be() -> None:
    assert found(MADE) == {}
    for topic in output_topics(settings(), 8):
        assert findings(topic, TopicState(topic.partitions or 0, topic.configs), settings()) == []


def test_a_setting_that_an_old_broker_does_not_know_is_a_warning() -> None:
    known = {key: value for key, value in MADE.items() if key != "message.timestamp.after.max.ms"}
    assert found(known) == {"message.timestamp.after.max.ms": False}


def test_settings_that_may_not_be_read_are_not_believed() -> None:
    assert found({}) == {"settings": True}


def test_records_from_further_ahead_than_the_policy_allows_break_a_promise() -> None:
    assert found(MADE | {"message.timestamp.after.max.ms": "120001"}) == {"message.timestamp.after.max.ms": True}
    assert found(MADE | {"message.timestamp.after.max.ms": "119999"}) == {"message.timestamp.after.max.ms": False}
    assert found(MADE | {"message.timestamp.after.max.ms": "60000"}, policy={"max_ahead": "1m"}) == {}


def test_retention_may_be_longer_than_asked_for_but_not_shorter_than_72_hours() -> None:
    assert found(MADE | {"retention.ms": "259200000"}) == {}
    assert found(MADE | {"retention.ms": "259199999"}) == {"retention.ms": True}
    assert found(MADE | {"retention.ms": "-1"}, topics={"telemetry_retention": "72h"}) == {}


def test_telemetry_may_have_any_number_of_partitions_as_its_first_start_found_it() -> None:
    given = settings(kafka={"partitions": 3})
    assert findings(telemetry_topic(given), TopicState(8, MADE), given) == []


def test_under_add_remove_the_broker_has_to_stamp_telemetry(tmp_path: Path) -> None:
    cell = "8742d9d6dffffff"
    (tmp_path / "cells.txt").write_text(f'source = "public"\n{cell}\n')
    policy = {
        "name": "p",
        "cells": "cells.txt",
        "privacy": {"relation": "add_remove", "min_users": None},
        "estimator": {"name": "capped_ratio", "array_length": 20},
    }
    hidden = settings_of(merged(DEFAULTS, {"policy": policy}), tmp_path, {})
    made = telemetry_topic(hidden).configs
    assert made["message.timestamp.type"] == "LogAppendTime"
    for configs, wrong in ((made, {}), (MADE, {"message.timestamp.type": True})):
        state = TopicState(8, configs)
        assert {each.setting: each.breaks for each in findings(telemetry_topic(hidden), state, hidden)} == wrong
    assert found(made)["message.timestamp.type"], "and under replace it may not"
