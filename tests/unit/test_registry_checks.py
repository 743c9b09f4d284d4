"""What a worker's settings may not differ in from what is registered, and that each comparison is made."""

from typing import Any

import msgspec
import pytest

from hatcast.agents.kafka.registry import POLICY_KEY, Facts, PolicyRecord, PolicyTopics, UserKey
from hatcast.agents.kafka.registry_checks import (
    check_facts,
    check_policy_name,
    check_policy_record,
    policies_beside_a_tracker,
    policies_that_show_zeros,
    with_current_key,
)
from hatcast.agents.recovery.domain import Domain
from hatcast.stream.errors import HatcastError
from tests.displaying import SETTINGS

OWN = PolicyRecord(
    domain="buses",
    policy="speed",
    policy_id="b2:1",
    canonical=msgspec.Raw(b'{"lateness":300000,"privacy":{"epsilon":1}}'),
    topics=PolicyTopics(means="m", queries="q", budget="b", reports="r"),
    telemetry_id="id-1",
    reports_id="id-2",
    partitions=8,
    partitioner="murmur2",
    telemetry_format="jsonl",
    reading_rules=1,
    timezone="Asia/Kolkata",
    user_key=UserKey(fingerprint="f1", made=False),
)
OTHER_EPSILON: dict[str, Any] = {
    "policy_id": "b2:2",
    "canonical": msgspec.Raw(b'{"lateness":300000,"privacy":{"epsilon":5}}'),
}
CHANGES: list[tuple[dict[str, Any], list[str]]] = [
    (OTHER_EPSILON, ["another policy.privacy.epsilon:", "new policy.name"]),
    (
        {"topics": PolicyTopics(means="m2", queries="q", budget="b", reports="r")},
        ["topics.means is 'm2'", "'m'", "again"],
    ),
    ({"topics": PolicyTopics(means="m", queries="q2", budget="b", reports="r")}, ["topics.queries is 'q2'", "'q'"]),
    ({"topics": PolicyTopics(means="m", queries="q", budget="b2", reports="r")}, ["topics.budget is 'b2'", "'b'"]),
    ({"topics": PolicyTopics(means="m", queries="q", budget="b", reports="r2")}, ["topics.reports is 'r2'", "'r'"]),
    ({"partitioner": "crc32"}, ["topics.telemetry_partitioner is 'crc32'", "'murmur2'"]),
    ({"telemetry_format": "hfp"}, ["topics.telemetry_format is 'hfp'", "'jsonl' again", "replace it"]),
    ({"reading_rules": 2}, ["by rules 2", "under rules 1", "run a hatcast with rules 1", "replace it"]),
    ({"partitions": 9}, ["8 telemetry partitions", "now has 9", "`hatcast worker --drain`"]),
    ({"telemetry_id": "id-3"}, ["'buses' was deleted and created again", "id-1", "id-3", "new policy.name"]),
    ({"reports_id": "id-3"}, ["'r' was deleted and created again", "id-2", "id-3"]),
    ({"timezone": "UTC"}, ["policy.timezone is 'UTC'", "'Asia/Kolkata'"]),
    ({"domain": "trams"}, ["telemetry 'buses', not of 'trams'"]),
    ({"user_key": UserKey(fingerprint="f2", made=False)}, ["f1", "f2", "restore it"]),
    ({"user_key": UserKey(fingerprint="f2", made=True)}, ["no user key is configured", "f1", "configure it again"]),
]


def changed(record: PolicyRecord, changes: dict[str, Any]) -> PolicyRecord:
    return msgspec.structs.replace(record, **changes)


def facts_of(*records: PolicyRecord) -> Facts:
    return Facts.of("topic", {f"{POLICY_KEY}{each.policy}": msgspec.json.encode(each) for each in records})


@pytest.mark.parametrize(("changes", "words"), CHANGES, ids=[next(iter(changes)) for changes, _ in CHANGES])
def test_whatever_differs_from_the_registered_is_refused_with_both_values_and_the_fix(
    changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(HatcastError) as refused:
        check_facts(facts_of(OWN), changed(OWN, changes))
    assert "\n" not in str(refused.value)
    for word in words:
        assert word in str(refused.value)
    # The mutant that does not look at it: one that takes over what is registered.
    check_facts(facts_of(OWN), changed(changed(OWN, changes), {key: getattr(OWN, key) for key in changes}))


def test_what_agrees_is_accepted_and_nothing_is_to_be_written() -> None:
    check_facts(facts_of(OWN), OWN)
    assert msgspec.json.encode(with_current_key(OWN, OWN)) == msgspec.json.encode(OWN)


def test_a_time_zone_has_to_be_that_of_every_policy_of_the_domain() -> None:
    with pytest.raises(HatcastError, match=r"policy\.timezone is 'UTC', policy 'speed' .* 'Asia/Kolkata'"):
        check_facts(facts_of(OWN), changed(OWN, {"policy": "next", "timezone": "UTC"}))
    check_facts(facts_of(OWN), changed(OWN, {"policy": "next", "partitioner": "crc32", **OTHER_EPSILON}))


def test_a_limit_as_epsilon_delta_is_refused_beside_another_policy_whichever_is_registered_first() -> None:
    canonical = msgspec.Raw(b'{"privacy":{"composed_limit":10.0,"daily_limit":15.75}}')
    composed = changed(OWN, {"policy": "limited", "policy_id": "b2:3", "canonical": canonical})
    check_facts(facts_of(composed), composed)
    for known, own in ((OWN, composed), (composed, OWN)):
        with pytest.raises(HatcastError, match=rf"policy '{own.policy}' shares the days of {known.policy}"):
            check_facts(facts_of(known), own)
    after = msgspec.Raw(b'{"privacy":{"epsilon":1},"replaces":"limited"}')
    check_facts(facts_of(composed), changed(OWN, {"policy": "after", "replaces": "limited", "canonical": after}))


def test_a_policy_that_drops_zeros_is_found_beside_one_that_keeps_them() -> None:
    keeps, drops = (
        changed(OWN, {"policy": name, "canonical": msgspec.Raw(b'{"drop_zero":%b}' % drop_zero)})
        for name, drop_zero in (("keeps", b"false"), ("drops", b"true"))
    )
    assert policies_that_show_zeros(facts_of(drops, keeps), keeps) == ["drops"]
    assert policies_that_show_zeros(facts_of(keeps), keeps) == []
    assert policies_that_show_zeros(facts_of(drops, keeps), drops) == []


def test_policies_that_share_days_with_a_tracker_are_found_and_one_that_is_replaced_does_not() -> None:
    tracker = changed(OWN, {"policy": "tracked", "canonical": msgspec.Raw(b'{"tracker":{"share":0.3}}')})
    after = changed(OWN, {"policy": "after", "replaces": "tracked"})
    assert policies_beside_a_tracker(facts_of(OWN), OWN) == []
    assert policies_beside_a_tracker(facts_of(OWN, changed(OWN, {"policy": "plain"})), OWN) == []
    assert policies_beside_a_tracker(facts_of(OWN, tracker), OWN) == ["tracked"]
    assert policies_beside_a_tracker(facts_of(OWN), tracker) == ["speed"]
    assert policies_beside_a_tracker(facts_of(OWN, tracker), changed(OWN, {"replaces": "tracked"})) == []
    follows = changed(tracker, {"replaces": "speed"})
    assert policies_beside_a_tracker(facts_of(OWN, follows, after), OWN) == []
    assert policies_beside_a_tracker(facts_of(OWN, follows), after) == [], "also of a policy before the previous one"


def test_a_key_of_hatcasts_own_that_was_lost_is_no_contradiction_and_is_registered_anew() -> None:
    stored = changed(OWN, {"user_key": UserKey(fingerprint="lost", made=True)})
    own = changed(OWN, {"user_key": UserKey(fingerprint="new", made=True)})
    check_policy_record(stored, own)
    assert with_current_key(stored, own).user_key.fingerprint == "new"
    with pytest.raises(HatcastError, match=r"another user key is configured .* one that hatcast generated"):
        check_policy_record(stored, changed(OWN, {"user_key": UserKey(fingerprint="new", made=False)}))


def test_an_id_that_was_not_known_is_added_and_one_that_is_not_told_contradicts_nothing() -> None:
    unknown = changed(OWN, {"telemetry_id": None, "reports_id": None})
    check_policy_record(unknown, OWN)
    check_policy_record(OWN, unknown)
    assert with_current_key(unknown, OWN) == OWN
    assert with_current_key(OWN, unknown) == OWN


@pytest.mark.parametrize("fact", ["telemetry_format", "reading_rules"])
def test_a_record_that_does_not_say_how_records_are_read_is_not_readable(fact: str) -> None:
    record = msgspec.json.decode(msgspec.json.encode(OWN))
    del record[fact]
    with pytest.raises(HatcastError, match=r"topic t: the record 'policy/speed' cannot be read"):
        Facts.of("t", {"policy/speed": msgspec.json.encode(record)})


def test_a_name_that_another_telemetry_has_is_refused() -> None:
    with pytest.raises(HatcastError, match=r"'speed' is the name of a policy of telemetry 'trams' .* new policy\.name"):
        check_policy_name("speed", "buses", [changed(OWN, {"domain": "trams"})])
    check_policy_name("speed", "buses", [OWN, changed(OWN, {"domain": "trams", "policy": "other"})])


def test_a_domain_has_every_output_topic_ever_used_and_facts_ignore_what_they_do_not_know() -> None:
    other = changed(OWN, {"policy": "old", "topics": PolicyTopics(means="m0", queries="q", budget="b0")})
    domain, own = Domain.of(facts_of(OWN, other), SETTINGS, 4), SETTINGS.topics
    assert domain.releases == {"m", "m0", "q", own.means, own.queries}
    assert domain.budgets == {"b", "b0", own.budget}
    assert domain.outputs == domain.releases | domain.budgets
    found = Facts.of("t", {**facts_of(OWN, other).values, "sealed/2022-01-02": b"not ours to read"})
    assert found.policies == {"speed": OWN, "old": other}
    assert found.of_kind("sealed/") == {"2022-01-02": b"not ours to read"}
    with pytest.raises(HatcastError, match=r"topic t: the record 'policy/x' cannot be read"):
        Facts.of("t", {"policy/x": b"{}"})
