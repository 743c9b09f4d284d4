"""Generate schemas/asyncapi.yaml: topics and records as an AsyncAPI 3.0 document, with Kafka bindings 0.5.0.

Generated from the code: `RECORDS`, the topic settings of agents/kafka/topic_rules.py for the hatcast.toml in the
repository, the schemas, and the golden messages of this version as examples.
"""

import tomllib
from collections.abc import Iterable
from typing import Any, Final

import yaml

from hatcast.agents.config.settings import DEFAULT_FILE, Settings, load_settings
from hatcast.agents.kafka.cloud_events import CONTENT_TYPE, SPEC_VERSION, event_type
from hatcast.agents.kafka.topic_rules import (
    CLEANUP,
    TopicSpec,
    clustering_topics,
    output_topics,
    reports_topic,
    telemetry_topic,
)
from tools.schemas.golden import golden_files, read_golden
from tools.schemas.json_schema import FOLDER, SUFFIX
from tools.schemas.records import RECORDS, Action, RecordType

DOCUMENT: Final = "asyncapi.yaml"
BINDING: Final = {"bindingVersion": "0.5.0"}
_WIDTH: Final = 120
_NUMERIC_CONFIGS: Final = ("retention.ms", "retention.bytes", "delete.retention.ms", "max.message.bytes")

_DESCRIPTION: Final = """\
hatcast consumes vehicles' readings from one topic and publishes private means for every hexagon and slot. Topics have
the names and settings of the hatcast.toml in the repository; `x-hatcast-setting` is the key that changes a name. The
public topics are compacted by key, without deletion. A release may be sent twice: equal `release_id` means
equal bytes. Read with isolation level read_committed, from the beginning. docs/consume.md has consumers.
"""

Object = dict[str, Any]


def version() -> str:
    """Return the version in pyproject.toml."""
    number: str = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text())["project"]["version"]
    return number


def document() -> Object:
    """Return the AsyncAPI document."""
    settings = load_settings(FOLDER.parent / DEFAULT_FILE, {})
    partitions = settings.kafka.partitions
    inputs = (
        telemetry_topic(settings),
        reports_topic(settings, partitions),
        *clustering_topics(settings, partitions),
    )
    topics = {topic.name: topic for topic in (*inputs, *output_topics(settings, partitions))}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "hatcast",
            "version": version(),
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {
            "kafka": {
                "host": settings.kafka.bootstrap_servers,
                "protocol": "kafka",
                "description": "`kafka.bootstrap_servers` of hatcast.toml, or HATCAST_KAFKA_BOOTSTRAP_SERVERS",
                "bindings": {"kafka": BINDING},
            }
        },
        "channels": {
            each.topic: _channel(each, topics[getattr(settings.topics, each.topic)]) for each in RECORDS.values()
        },
        "operations": {f"{each.action}_{each.topic}": _operation(each) for each in RECORDS.values()},
        "components": {"messages": {each.name: _message(each, settings) for each in RECORDS.values()}},
    }


def document_text() -> bytes:
    """Return the document as YAML."""

    class BlockDumper(yaml.SafeDumper):
        """YAML dumper without anchors, and with multi-line strings as blocks."""

        def ignore_aliases(self, _data: object) -> bool:
            return True

    BlockDumper.add_representer(
        str,
        lambda dumper, text: dumper.represent_scalar(
            "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
        ),
    )
    head = "# Written by `python -m tools.schemas` from the code; scripts/check compares them.\n"
    dumped: str = yaml.dump(document(), Dumper=BlockDumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return (head + dumped).encode()


def _channel(record: RecordType, topic: TopicSpec) -> Object:
    return {
        "address": topic.name,
        "title": topic.name,
        "summary": record.summary,
        "messages": {record.name: {"$ref": f"#/components/messages/{record.name}"}},
        "bindings": {
            "kafka": {
                "topic": topic.name,
                "partitions": topic.partitions,
                "topicConfiguration": {
                    setting: int(value) if setting in _NUMERIC_CONFIGS else [value] if setting == CLEANUP else value
                    for setting, value in topic.configs.items()
                },
                **BINDING,
            }
        },
        "x-hatcast-setting": f"topics.{record.topic}",
    }


def _operation(record: RecordType) -> Object:
    client: Object = {"clientId": {"type": "string", "const": "hatcast"}}
    if record.action is Action.RECEIVE:
        client["groupId"] = {"type": "string", "pattern": "^hatcast-", "description": "hatcast-NAME of the policy"}
    return {
        "action": record.action.value,
        "channel": {"$ref": f"#/channels/{record.topic}"},
        "summary": record.summary,
        "messages": [{"$ref": f"#/channels/{record.topic}/messages/{record.name}"}],
        "bindings": {"kafka": {**client, **BINDING}},
    }


def _message(record: RecordType, settings: Settings) -> Object:
    message: Object = {
        "name": record.name,
        "title": record.type_.__name__,
        "summary": record.summary,
        "contentType": CONTENT_TYPE,
    }
    if record.event_id is not None:
        message["headers"] = headers_schema(record, settings.topics.telemetry)
    if record.key is not None:
        message["bindings"] = {"kafka": {"key": {"type": "string", "description": record.key}, **BINDING}}
    message["payload"] = {"$ref": f"./{record.name}{SUFFIX}"}
    message["examples"] = [*_examples(record)]
    return message


def headers_schema(record: RecordType, telemetry: str) -> Object:
    """Return the schema of a record's CloudEvents headers."""
    properties: Object = {
        "ce_specversion": {"type": "string", "const": SPEC_VERSION},
        "ce_id": {"type": "string", "minLength": 1, "description": f"{record.event_id}: one event, however often sent"},
        "ce_source": {
            "type": "string",
            "format": "uri-reference",
            "const": f"hatcast/{telemetry}",
            "description": "hatcast/TOPIC of the readings",
        },
        "ce_type": {"type": "string", "const": event_type(record.name)},
    }
    if record.timed:
        properties["ce_time"] = {"type": "string", "format": "date-time", "description": "released_at of the record"}
    properties["content-type"] = {"type": "string", "const": CONTENT_TYPE}
    return {"type": "object", "properties": properties, "required": [*properties]}


def _examples(record: RecordType) -> Iterable[Object]:
    for path in golden_files(FOLDER, version()):
        if path.parent.name == record.name:
            golden = read_golden(path)
            headers: Object = {"headers": golden.headers} if golden.headers else {}
            yield {"name": path.stem, **headers, "payload": golden.payload}
