"""Checks of a telemetry topic that exists already, for `hatcast doctor --topic`. Nothing is changed or created."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Final

import msgspec

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.doctor.checks import Check, CheckState, of_finding, ok, problem, warning
from hatcast.agents.kafka.client import admin_client, broker_name
from hatcast.agents.kafka.dump import DumpLine, lines_between
from hatcast.agents.kafka.partition_reader import open_consumer
from hatcast.agents.kafka.topic_rules import TopicState, findings, telemetry_topic
from hatcast.agents.kafka.topics import list_offsets, topic_range, topic_state
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.topic_sample import SAME_TIME_SHARE, TopicSample, best_partitioner, share
from hatcast.stream.readings.formats import format_with
from hatcast.stream.readings.formats.gtfs_rt import FLEET_NUMBERS
from hatcast.stream.readings.vehicles import PARTITIONERS


def uncommitted_offsets(settings: Settings, topic: str, bounds: Sequence[tuple[int, int]]) -> int:
    """Return the number of offsets behind open transactions. `bounds`: as in `newest_records`."""
    from confluent_kafka.admin import OffsetSpec

    with admin_client(settings) as admin:
        ends = list_offsets(admin, topic, len(bounds), OffsetSpec.latest())
    again = topic_range(settings, topic)  # a producer may have committed more meanwhile
    return sum(max(0, end.offset - after) for end, (_, after) in zip(ends, again, strict=True))


def newest_records(settings: Settings, topic: str, bounds: Sequence[tuple[int, int]], most: int) -> Iterator[DumpLine]:
    """Yield about `most` records, equally many of each partition, in the order of each partition.

    bounds   (first offset, offset after the last committed record) of each partition
    Raises HatcastError if the broker denies reading, or stops answering.
    """
    from confluent_kafka import KafkaException

    each = max(1, most // len(bounds))
    starts = {partition: max(start, end - each) for partition, (start, end) in enumerate(bounds)}
    ends = {partition: end for partition, (start, end) in enumerate(bounds) if end > start}
    options = {"auto.offset.reset": "earliest", "queued.max.messages.kbytes": 32_768}
    with open_consumer(settings, "doctor", options) as consumer:
        try:
            for lines in lines_between(consumer, topic, starts, ends):
                yield from lines
        except KafkaException as raised:
            raise HatcastError(
                f"{broker_name(settings)} does not let this user read {topic} ({raised.args[0].str()}): grant READ on"
                " it and on the groups hatcast-*, or see the broker's log"
            ) from None


SAMPLE_RECORDS: Final = 10_000
_PAGE: Final = "docs/feeds.md#a-topic-that-exists"
_REKEY: Final = f"workers would drop readings as wrong_partition: write the topic again under its vehicle ids ({_PAGE})"


def check_brought_topic(settings: Settings, records: int = SAMPLE_RECORDS) -> Iterator[Check]:
    """Check the settings of the telemetry topic, and its newest records, in the format of the settings.

    Raises HatcastError: the topic is missing or cannot be read, or the format lacks a value of the policy.
    """
    topic = settings.topics.telemetry
    feed = format_with(settings.topics.telemetry_format, settings.policy.value_units)
    bounds = topic_range(settings, topic)
    state = topic_state(settings, topic)
    if state is None:  # deleted since its offsets were read
        raise HatcastError(f"topic {topic} was deleted meanwhile: check again")
    different = findings(telemetry_topic(settings), state, settings)
    if not different:
        yield ok("topic settings", f"{state.partitions} partitions; retention, cleanup and timestamps fit")
    yield from map(of_finding, different)
    without_speed = None if feed.without_speed is None else feed.without_speed.decode
    sample = TopicSample(settings.policy, feed.decode, without_speed, len(bounds))
    now, began_s = now_ms(), process_time()
    for each in newest_records(settings, topic, bounds, records):
        sample.add(each.partition, each.ts, each.key, each.value, now)
    yield _sample_check(sample, len(bounds), process_time() - began_s)
    if open_records := uncommitted_offsets(settings, topic, bounds):
        fix = "end or abort the transaction of its producer: workers read committed records only"
        yield warning("transactions", f"{open_records:,} offsets are behind an open transaction", fix)
    if sample.records:
        yield _format_check(sample, feed.name)
    if sample.decoded:
        yield _partition_check(settings, sample, len(bounds))
        yield from _time_checks(settings, sample, state)
        if (hint := sample.spans.hint()) is not None:
            found, _, fix = hint.partition(": ")
            yield warning("vehicle ids", found, fix)


def _sample_check(sample: TopicSample, partitions: int, cpu_s: float) -> Check:
    if not sample.records:
        return warning("sample", "no record with a value", "let its producer run, then check again: rest is unknown")
    rate = round(sample.records / max(cpu_s, 1e-6), -2)
    found = (
        f"{sample.records:,} records of {partitions} partitions, largest {sample.largest:,} bytes; {sample.vehicles:,}"
        f" vehicles; read and decoded at {rate:,.0f} a second of CPU"
    )
    if sample.tombstones:
        fix = "they count as heartbeat records, which is harmless; a topic of readings should have none"
        return warning("sample", f"{found}; {sample.tombstones:,} tombstones", fix)
    return ok("sample", found)


def _format_check(sample: TopicSample, name: str) -> Check:
    bad = sample.records - sample.decoded
    if not bad:
        return ok("format", f"all records are {name}")
    found = f"{share(bad, sample.records)} of the records are not {name}"
    reasons = []
    if sample.no_speed:
        found += f"; {share(sample.no_speed, sample.records)} have no speed"
        reasons.append("a bridge with --derive-speed makes speeds of positions")
    if sample.others:
        other, count = sample.others.most_common(1)[0]
        found += f"; {share(count, sample.records)} are {other}"
        doubt = f" {FLEET_NUMBERS}" if name in other else ""  # such as gtfs-rt-label for gtfs-rt
        reasons.append(f"try --format {other}{doubt}")
    state = CheckState.PROBLEM if not sample.decoded else CheckState.WARNING
    fix = "; ".join(reasons) or "name their format by --format, or correct their producer"
    return Check("format", state, found, f"{fix}: workers count them as undecodable")


def _partition_check(settings: Settings, sample: TopicSample, partitions: int) -> Check:
    configured = settings.topics.telemetry_partitioner
    keyed = f"{share(sample.keyed, sample.decoded)} of the keys are vehicle ids"
    if sample.matching[configured] == sample.decoded:
        return ok("partitions of vehicles", f"all follow {configured}; {keyed}")
    other = best_partitioner(sample.matching, sample.decoded)
    if other is not None:
        fix = f'set topics.telemetry_partitioner = "{other}" before the first start'
        return problem("partitions of vehicles", f"all follow {other}, not {configured}; {keyed}", fix)
    shares = ", ".join(f"{share(sample.matching[name], sample.decoded)} follow {name}" for name in PARTITIONERS)
    apart = f"each vehicle is in one of {partitions} partitions, by an unknown rule"
    if sample.scattered:
        apart = f"{sample.scattered:,} of {sample.vehicles:,} vehicles are in several partitions"
    return problem("partitions of vehicles", f"{apart}; {shares}; {keyed}", _REKEY)


def _time_checks(settings: Settings, sample: TopicSample, state: TopicState) -> Iterator[Check]:
    policy = settings.policy
    kind = "LogAppendTime" if state.log_append_time else "CreateTime"
    lag = sample.median_lag_ms
    if lag is None:
        fix = "a time needs an offset from UTC, such as 2026-01-31T06:00:00+05:30, or is in ms since 1970"
        yield problem("times", "no reading has a readable time", fix)
        return
    found = f"{kind}; readings are {lag / 1000:,.1f} s older than their records in the median"
    if sample.ahead:
        fix = "set the producers' clocks by NTP: a partition waits until the time of its record has come"
        yield problem("times", f"{found}; {share(sample.ahead, sample.records)} are in the future", fix)
    elif sample.copied >= SAME_TIME_SHARE * sample.timed and not state.log_append_time:
        fix = (
            "let the producer date records by its own clock, or set LogAppendTime where the policy permits it: a"
            " vehicle whose clock is ahead would close hours for all others"
        )
        yield warning("times", f"{found}; {share(sample.copied, sample.timed)} are dated by the vehicle", fix)
    elif lag > policy.slot_length_ms + policy.lateness_ms:
        fix = f"send readings sooner, or raise policy.lateness: it is {policy.lateness_ms / 1000:g} s"
        yield warning("times", found, fix)
    else:
        yield ok("times", found)
    order = f"{share(sample.unordered, sample.records)} of the records are out of order"
    late = f"{share(sample.late, sample.decoded)} of the readings are late for their hour"
    if sample.late * 100 > sample.decoded:
        fix = f"raise policy.lateness, which is {policy.lateness_ms / 1000:g} s, or send sooner: late ones are dropped"
        yield warning("lateness", f"{late}; {order}", fix)
    else:
        yield ok("lateness", f"{late}; {order}")


def examine_topic(config: Path, topic: str, feed: str | None, records: int = SAMPLE_RECORDS) -> Iterator[Check]:
    """Run all checks of a topic in order; an error that ends them is a problem.

    feed   format of its records; None: that of the configuration
    """
    try:
        settings = load_settings(config)
        feed = feed or settings.topics.telemetry_format
        topics = msgspec.structs.replace(settings.topics, telemetry=topic, telemetry_format=feed)
        yield from check_brought_topic(replace(settings, topics=topics), records)
    except HatcastError as error:
        yield problem(f"topic {topic}", "not usable", str(error))
