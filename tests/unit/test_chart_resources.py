"""Objects around the pods of the Helm chart: topics, users, networks, scaling, alerts."""

import inspect
import json
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from hatcast.agents.kafka.topic_rules import output_topics, telemetry_topic
from hatcast.agents.worker.policy_transition import PolicyTransition
from tests.charts import NAMES, Object, changed, of_kind, pods, render, rendered, settings_of, values
from tests.services.data import ROOT
from tools import chart
from tools.chart_grants import grant_problems

ALERTS: Final = yaml.safe_load((ROOT / "ops" / "prometheus" / "alerts.yaml").read_text())
every_example = pytest.mark.parametrize("name", NAMES)


def test_the_alerts_are_those_of_prometheus_alone() -> None:
    (rule,) = of_kind("everything", "PrometheusRule")
    assert rule["spec"] == ALERTS
    (rule,) = of_kind("strimzi", "PrometheusRule")
    wanted = json.dumps(ALERTS).replace("{{ $externalLabels.runbook }}", "https://docs.example/runbook/")
    assert rule["spec"] == json.loads(wanted)


def test_jobs_are_those_by_which_the_alerts_find_them() -> None:
    asked = set(re.findall(r"hatcast-(?:worker|bridge|display)", json.dumps(ALERTS)))
    services = [made["metadata"]["labels"] for made in of_kind("strimzi", "Service")]
    jobs = {labels["hatcast/job"] for labels in services if "hatcast/job" in labels}
    assert jobs == asked | {"hatcast-bridge"}
    monitors = of_kind("strimzi", "ServiceMonitor")
    assert all(monitor["spec"]["jobLabel"] == "hatcast/job" for monitor in monitors)
    assert {monitor["spec"]["selector"]["matchLabels"]["hatcast/job"] for monitor in monitors} == jobs


@every_example
def test_every_selector_finds_the_pods_that_it_is_for(name: str) -> None:
    found = [labels for labels, _ in pods(rendered(name))]
    for made in rendered(name):
        spec = made.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        selector = selector.get("matchLabels", selector)
        if made["kind"] == "ServiceMonitor" or not selector:
            continue
        selected = [labels for labels in found if selector.items() <= labels.items()]
        assert selected, f"{made['kind']} {made['metadata']['name']}"
        assert len({labels["app.kubernetes.io/component"] for labels in selected}) == 1
        if made["kind"] == "Deployment":
            assert selected == [made["spec"]["template"]["metadata"]["labels"]], "it would take the pods of another one"


def test_each_pod_is_placed_as_its_values_say() -> None:
    given = values("everything")
    wanted = {"worker": given["worker"], "doctor": given["worker"], "display": given["display"]}
    wanted |= {feed["name"]: feed for feed in given["feeds"]}
    places = ("nodeSelector", "tolerations", "affinity")
    found = {
        labels.get("hatcast/feed", labels["app.kubernetes.io/component"]): {key: spec.get(key) for key in places}
        for labels, spec in pods(rendered("everything"))
    }
    assert found == {name: {key: table.get(key) for key in places} for name, table in wanted.items()}
    assert found["oslo"]["nodeSelector"] == {"kubernetes.io/arch": "arm64"}


@every_example
def test_every_pod_is_reached_by_metrics_and_the_map_alone(name: str) -> None:
    policies = of_kind(name, "NetworkPolicy")
    for labels, _ in pods(rendered(name)):
        own = [each for each in policies if each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]
        assert len(own) == 1
        assert own[0]["spec"]["policyTypes"] == ["Ingress", "Egress"]
        opened = {port["port"] for rule in own[0]["spec"]["ingress"] for port in rule["ports"]}
        component = labels["app.kubernetes.io/component"]
        assert opened == {"worker": {"metrics"}, "feed": {"metrics"}, "doctor": set()}.get(
            component, {"metrics", "http"}
        )
        left = {port["port"] for rule in own[0]["spec"]["egress"] for port in rule["ports"]}
        assert (6379 in left or 6380 in left) is (component in ("worker", "doctor"))


@pytest.mark.parametrize(("name", "ports"), [("minimal", {53}), ("everything", {53, 5353})])
def test_every_pod_may_ask_for_names_at_the_ports_of_the_pods_that_answer(name: str, ports: set[int]) -> None:
    wanted = {(protocol, port) for port in ports for protocol in ("UDP", "TCP")}
    for made in of_kind(name, "NetworkPolicy"):
        asked = made["spec"]["egress"][0]
        assert {(port["protocol"], port["port"]) for port in asked["ports"]} == wanted
        assert "to" not in asked


def test_a_feed_reaches_the_usual_ports_of_its_kind_or_those_that_are_named(tmp_path: Path) -> None:
    kinds = {"amqp": {5671, 5672}, "gtfs-rt": {80, 443}, "mqtt": {1883, 8883}, "siri": {80, 443}}
    feeds: list[dict[str, object]] = [{"name": kind, "args": [kind]} for kind in kinds]
    feeds.append({"name": "odd", "args": ["mqtt", "--port=9883"], "ports": [9883]})
    reached = {
        made["spec"]["podSelector"]["matchLabels"]["hatcast/feed"]: {
            port["port"] for port in made["spec"]["egress"][-1]["ports"]
        }
        for made in render(changed("minimal", tmp_path, feeds=feeds))
        if made["kind"] == "NetworkPolicy" and "feed" in made["metadata"]["name"]
    }
    assert reached == {**kinds, "odd": {9883}}


@pytest.mark.parametrize("name", ["strimzi", "everything"])
def test_the_topics_of_strimzi_are_those_that_hatcast_would_make(name: str, tmp_path: Path) -> None:
    settings = settings_of(name, "worker", tmp_path)
    wanted = [telemetry_topic(settings), *output_topics(settings, settings.kafka.partitions)]
    made = {topic["spec"]["topicName"]: topic for topic in of_kind(name, "KafkaTopic")}
    assert made.keys() == {topic.name for topic in wanted}
    for topic in wanted:
        spec = made[topic.name]["spec"]
        assert spec["partitions"] == topic.partitions
        assert {key: value for key, value in spec["config"].items() if key != "min.insync.replicas"} == topic.configs
        assert made[topic.name]["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


SPENT: Final = "daily_limit = 20.0\nepsilon = 1.0\nmax_hats_per_day = 5\n\n[policy.estimator]\n"
LEVY: Final = SPENT + 'name = "levy"\n'
TRACKER: Final = 'daily_limit = 5.0\n\n[policy.estimator]\nname = "tracker"\n'
QUERY: Final = (
    LEVY
    + '[[policy.query]]\nname = "week"\nkind = "mean_speed"\ndays = 7\nepsilon = 0.1\nmin_n = 310\n'
    + 'from = "2022-01-01"\n'
)
DEVICES: Final = SPENT + 'name = "pwh"\n'
RUNNING: Final = '[[policy.running]]\nname = "today"\nwindow = "today"\n'


@pytest.mark.parametrize(
    ("policy", "create"), [(LEVY, False), (QUERY, True), (DEVICES + RUNNING, True), (TRACKER, True)]
)
def test_each_user_of_kafka_has_the_rights_that_are_printed_for_its_role_and_no_others(
    policy: str, *, create: bool, tmp_path: Path
) -> None:
    whole = values("strimzi")["config"].partition("daily_limit")[0] + policy
    objects = render(changed("strimzi", tmp_path, config=whole, strimzi={"topics": {"create": create}}))
    assert {made["kind"] for made in objects} >= {"KafkaUser"}
    assert [*grant_problems(objects, tmp_path)] == []
    users = [made for made in objects if made["kind"] == "KafkaUser"]
    assert len(users) == 3
    for user in users:
        rights = user["spec"]["authorization"]["acls"]
        removed = rights[0]["operations"].pop()
        rights[-1]["operations"].append("Alter")
        name = user["metadata"]["name"]
        found = [each for each in grant_problems(objects, tmp_path) if name in each]
        assert found[0].startswith(f"KafkaUser {name} may Alter ")
        assert found[1].startswith(f"KafkaUser {name} may not {removed} ")


def test_workers_are_scaled_by_their_own_groups_lag_up_to_the_partitions(tmp_path: Path) -> None:
    settings = settings_of("strimzi", "worker", tmp_path)
    (scaled,) = of_kind("strimzi", "ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metadata"]["consumerGroup"] == f"hatcast-{settings.policy.name}"
    assert trigger["metadata"]["topic"] == settings.topics.telemetry
    assert scaled["spec"]["maxReplicaCount"] == settings.kafka.partitions == 12
    (target,) = (made for made in of_kind("strimzi", "Deployment") if made["metadata"]["name"].endswith("-worker"))
    assert scaled["spec"]["scaleTargetRef"] == {"name": target["metadata"]["name"]}
    assert "replicas" not in target["spec"], "an upgrade would undo what KEDA has set"


def test_a_drain_is_one_job_in_place_of_the_workers(tmp_path: Path) -> None:
    objects = render(changed("strimzi", tmp_path, worker={"drain": True}, feeds=[]))
    assert [problem for made in objects for problem in chart.problems(made)] == []
    (job,) = (made for made in objects if made["kind"] == "Job")
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--drain"
    assert not any(
        made["kind"] in ("Deployment", "ScaledObject") and "worker" in made["metadata"]["name"] for made in objects
    )


def test_an_upgrade_and_its_rebalance_are_no_reason_for_more_workers() -> None:
    (scaled,) = of_kind("strimzi", "ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    a_worker_folds = 190_000  # live readings a second: docs/operations.md
    assert int(trigger["metadata"]["lagThreshold"]) >= 10 * a_worker_folds
    behaviour = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    up, down = behaviour["scaleUp"], behaviour["scaleDown"]
    assert up["stabilizationWindowSeconds"] >= 180, "longer than all stop, start and catch up"
    assert up["policies"] == [{"type": "Pods", "value": 2, "periodSeconds": 180}]
    assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 900}]


def drained(folder: Path, **tables: Object) -> tuple[Object, str]:
    """The job that drains, and the notes that name it."""
    objects = render(changed("strimzi", folder, **chart.merged({"worker": {"drain": True}, "feeds": []}, tables)))
    (job,) = (made for made in objects if made["kind"] == "Job")
    (notes,) = (made["text"] for made in objects if made["kind"] == "Notes")
    return job, notes


@pytest.fixture(scope="module")
def drain(tmp_path_factory: pytest.TempPathFactory) -> Object:
    return drained(tmp_path_factory.mktemp("drain"))[0]


@pytest.mark.parametrize(
    ("tables", "another"),
    [
        ({"display": {"enabled": False}, "networkPolicy": {"enabled": False}}, False),
        ({"image": {"pullSecrets": ["registry"]}}, True),
        ({"strimzi": {"port": 9095}}, True),
        ({"redis": {"passwordSecret": {"name": "login"}}}, True),
        ({"redis": {"existingSecret": {"name": ""}, "url": "redis://:a@r"}}, True),
        ({"files": {"other.txt": ""}}, True),
    ],
)
def test_a_job_that_drains_has_another_name_when_its_pod_is_another(
    tables: Object, *, another: bool, drain: Object, tmp_path: Path
) -> None:
    job, notes = drained(tmp_path, **tables)
    assert f"job/{job['metadata']['name']}\n" in notes
    assert (job["metadata"]["name"] != drain["metadata"]["name"]) is another
    assert (job["spec"] != drain["spec"]) is another, "Kubernetes refuses another pod in a job that is there"


def test_what_the_runbook_says_of_another_policy_is_so() -> None:
    steps = (ROOT / "docs" / "runbook.md").read_text().partition("### Another policy\n")[2].partition("\n### ")[0]
    assert 0 < steps.index("`replaced`") < steps.index("helm uninstall surat ") < steps.index("helm upgrade surat-2 ")
    assert 'log.info("replaced"' in inspect.getsource(PolicyTransition.check), "what the log says"
    names = {f"{made['kind']}/{made['metadata']['name']}" for made in rendered("strimzi") if "metadata" in made}
    assert "Deployment/surat-hatcast-worker" in names
    assert "deploy/surat-hatcast-worker`" in steps
    (silenced,) = re.findall(r'service=~"([^"]+)"', steps)
    metrics = {name.partition("/")[2] for name in names if name.startswith("Service/") and name.endswith("-metrics")}
    assert len(metrics) == 3
    assert all(re.fullmatch(silenced, name) for name in metrics)
    assert not re.fullmatch(silenced, "surat-2-hatcast-worker-metrics")


@every_example
def test_nothing_that_a_release_takes_with_it_holds_state(name: str) -> None:
    kept = [made for made in rendered(name) if "keep" in made.get("metadata", {}).get("annotations", {}).values()]
    assert {made["kind"] for made in kept} <= {"KafkaTopic"}
    gone = [made for made in rendered(name) if made not in kept]
    assert not {made["kind"] for made in gone} & {"KafkaTopic", "PersistentVolumeClaim", "StatefulSet"}
    volumes = [volume for _, spec in pods(gone) for volume in spec["volumes"] if "readOnly" not in str(volume)]
    assert {kind for volume in volumes for kind in volume} <= {"name", "configMap", "emptyDir", "secret"}


def test_the_stream_of_the_map_is_not_buffered_on_its_way() -> None:
    (ingress,) = of_kind("strimzi", "Ingress")
    assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert ingress["spec"]["tls"] == [{"hosts": ["map.city.example"], "secretName": "map-tls"}]
