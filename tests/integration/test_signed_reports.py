"""Attackers who may write to `reports`, against a worker that checks signatures: only honest devices are counted.

Workers are killed, join and are replaced meanwhile, and the keys are rotated. The central noise is acknowledged to be
next to none, and devices' own mean is published by itself: so the result without attackers is known exactly.
"""

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import h3.api.basic_str as h3
import msgspec

from hatcast.stream.hybrid import DeviceReport, encode_report
from hatcast.stream.hybrid.signatures import public_key
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, PLACES, Sample, ticks
from tests.services import KafkaServer, Record, RedisServer
from tests.signing import AUTHORITY, Device, report_of, seed_of

CELL: Final = h3.latlng_to_cell(*PLACES[0], 7)
OVER, END = NOON_MS + HOUR_MS, NOON_MS + 2 * HOUR_MS
NEXT: Final = seed_of("the next authority")
HONEST: Final = [Device(number) for number in range(20)]
LATER: Final = [Device(number, authority=NEXT) for number in range(20, 30)]
STRANGER, THIEF, LAST_OF_OLD = Device(100, authority=seed_of("stranger")), Device(101), Device(102)
REFUSED: Final = 7 + 2 * 2 + len(HONEST)  # forged; of a revoked and of an old key, and replayed; replays of old keys
CHANGES: Final = {
    "worker": {"report_keys_file": "report-keys"},
    "policy": {
        "grid": 0.001,
        "privacy": {"epsilon": 1e6, "local_epsilon": 0.5, "daily_limit": 1e8, "acknowledge_weak_privacy": True},
        "estimator": {"name": "pwh", "groups": "separate"},
    },
}


def value_of(device: Device) -> Decimal:
    return Decimal(20_000 + 137 * device.number) / 1000


def test_only_what_certified_devices_have_signed_is_counted_and_each_once(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    old, new = (f"authority {public_key(seed).hex()}\n" for seed in (AUTHORITY, NEXT))
    keys = tmp_path / "report-keys"
    keys.write_text(old + new)
    with open_pipeline(kafka, redis_server, tmp_path, "signed", CHANGES) as pipeline:
        attack = Attack(pipeline)
        first = pipeline.worker()
        pipeline.wait_for_partitions(first)
        kafka.produce(
            pipeline.settings.topics.telemetry, [Sample(f"v{n}", NOON_MS + n, 0, 20.0).record() for n in range(30)]
        )
        attack.send(*attack.forged())  # before the honest ones: whatever counts here would displace theirs
        attack.send(*map(attack.honest, HONEST))
        attack.replay()
        pipeline.wait(pipeline.is_caught_up, "fold", first)
        assert attack.outcomes() == {"accepted": 20, "bad_signature": 7, "undecodable": 1, "duplicate": 20}
        first.kill()
        second = pipeline.worker()
        attack.replay()
        pipeline.wait(pipeline.is_caught_up, "fold after a kill", second)
        third = pipeline.worker()
        pipeline.wait_for_partitions(third)
        attack.replay()
        pipeline.wait(pipeline.is_caught_up, "fold after a rebalance", second, third)
        assert [worker.terminate() for worker in (second, third)] == [0, 0]
        assert attack.folded_by_batch() == attack.outcomes()
        keys.write_text(f"{new}revoked {LATER[-1].key.hex()}\n")
        last = pipeline.worker()
        attack.send(*map(attack.honest, [*LATER, LAST_OF_OLD]))
        attack.replay()
        pipeline.wait(pipeline.is_caught_up, "fold with rotated keys", last)
        # What was counted under the old keys stays; its replay is not signed by a certified key any more.
        counted = {"accepted": 29, "bad_signature": REFUSED, "undecodable": 1, "duplicate": 20 * 3 + 9}
        assert attack.outcomes() == counted
        for topic in (pipeline.settings.topics.telemetry, pipeline.settings.topics.reports):
            kafka.produce(topic, ticks(END))
        pipeline.wait(lambda: pipeline.is_settled() and bool(pipeline.published()), "release", last)
        assert last.terminate() == 0
        attack.send(*map(attack.honest, HONEST))
        check_release(pipeline)
        check_letters(attack)
        assert "bad_signature" not in last.logged() + second.logged()
        assert '"only signed reports count"' in last.logged()


class Attack:
    """Sends reports, genuine and others, and counts them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._sent: list[Record] = []

    def report(self, device: Device, **changes: Any) -> DeviceReport:
        policy_id = self.pipeline.settings.policy.policy_id
        return report_of(device, policy_id, CELL, **{"value": value_of(device), **changes})

    def honest(self, device: Device) -> Record:
        record = _record(device.sign(self.report(device)), device.id)
        self._sent.append(record)
        return record

    def send(self, *records: Record) -> None:
        self.pipeline.kafka.produce(self.pipeline.settings.topics.reports, records)

    def replay(self) -> None:
        """Send what honest devices have sent once more, with later timestamps."""
        self.send(*[Record(each.value, each.key, None, OVER + 60_000) for each in self._sent])

    def forged(self) -> list[Record]:
        victim, stolen = HONEST[0], HONEST[1]
        captured = HONEST[2].sign(self.report(HONEST[2]))
        others = self.report(THIEF, id=victim.id, value=Decimal(64))
        tomorrow = Device(THIEF.number, certified="2022-01-03")
        return [
            _record(encode_report(self.report(victim, value=Decimal(64))), victim.id),  # unsigned
            _record(STRANGER.sign(self.report(STRANGER)), STRANGER.id),  # certified by a stranger
            _record(THIEF.sign(others), victim.id),  # the id of another device
            _record(STRANGER.sign(self.report(STRANGER, id=stolen.id)), stolen.id),
            _record(tomorrow.sign(self.report(tomorrow)), tomorrow.id),  # certified for another date
            _record(captured.replace(b'"value":20.274', b'"value":64.274'), HONEST[2].id),  # changed on its way
            _record(captured[:-3] + b'0"}' if captured[-3:-2] != b"0" else captured[:-3] + b'1"}', HONEST[2].id),
            _record(captured[:-1] + b"," + b'"x":"' + b"0" * 2_048 + b'"}', HONEST[2].id),  # oversized
        ]

    def outcomes(self) -> dict[str, int]:
        found: dict[str, int] = self.pipeline.status()["reports"]["outcomes"]
        return {name: records for name, records in found.items() if records and name != "tick"}

    def folded_by_batch(self) -> dict[str, int]:
        """The outcomes of `hatcast batch` over dumps of both topics, with the keys as they are."""
        dumps = {name: self.pipeline.folder / f"{name}.jsonl" for name in ("telemetry", "reports")}
        for name, path in dumps.items():
            assert self.pipeline.hatcast("dump", name, "--output", path).code == 0
        done = self.pipeline.run(
            "batch", dumps["telemetry"], "--reports", dumps["reports"], "--format", "kafka", "--json"
        )
        found = {name.partition("."): records for name, records in done.json["outcomes"].items() if records}
        return {name: records for (topic, _, name), records in found.items() if topic == "reports" and name != "tick"}


def _record(value: bytes, key: str) -> Record:
    return Record(value, key.encode(), None, OVER + 1_000)


def check_release(pipeline: Pipeline) -> None:
    """The devices' own mean is that of the honest ones, to the digit."""
    ((value,),) = pipeline.published(committed=False).values()
    record = json.loads(value, parse_float=Fraction)
    honest = [*HONEST, *LATER[:-1]]
    mean = sum(Fraction(value_of(device)) for device in honest) / len(honest)
    assert record["users"] == {"central": 30, "local": len(honest)}
    assert abs(record["groups"]["local"]["raw"] - mean) <= Fraction(1, 1000)


def check_letters(attack: Attack) -> None:
    """A dead letter has the place of a record that was not genuine, its reason, and nothing of the report."""
    topics, kafka = attack.pipeline.settings.topics, attack.pipeline.kafka
    letters = [json.loads(each.value or b"") for each in kafka.read(topics.dead_letters)]
    assert {tuple(sorted(letter)) for letter in letters} == {("offset", "partition", "reason", "topic")}
    reasons = {
        (each["partition"], each["offset"]): each["reason"] for each in letters if each["topic"] == topics.reports
    }
    records = {(each.partition, each.offset): each for each in kafka.read(topics.reports)}
    refused = {place for place, reason in reasons.items() if reason == "bad_signature"}
    assert len(refused) == REFUSED
    assert [reason for reason in reasons.values() if reason != "bad_signature"] == ["undecodable"]
    ids = {msgspec.json.decode(records[place].value or b"")["id"] for place in refused}
    assert {HONEST[0].id, STRANGER.id, LAST_OF_OLD.id, LATER[-1].id} <= ids
