"""The Helm chart: what it renders is hardened, is what the program knows, and has secrets in Secrets alone."""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
import yaml

from hatcast.agents.cli import hatcast
from hatcast.agents.config.settings import load_settings
from hatcast.agents.config.tables import Address
from hatcast.agents.monitoring.declarations import Process
from hatcast.agents.monitoring.server import OperatorServer
from hatcast.agents.worker.stopping import STOP_SECONDS
from tests.charts import (
    NAMES,
    Object,
    changed,
    containers,
    of_kind,
    pods,
    render,
    rendered,
    run_helm,
    settings_of,
    values,
)
from tests.commands import problem_of
from tests.services.data import ROOT
from tools import chart, chart_values

CHART: Final = ROOT / "ops" / "helm" / "hatcast"
VERSION: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
every_example = pytest.mark.parametrize("name", NAMES)


def test_every_example_is_tested() -> None:
    assert [path.stem for path in chart.examples()] == list(NAMES)


def test_a_field_that_nobody_knows_is_seen() -> None:
    found = of_kind("everything", "Deployment", "ScaledObject", "KafkaUser", "ServiceMonitor")
    assert {made["kind"] for made in found} == {"Deployment", "ScaledObject", "KafkaUser", "ServiceMonitor"}
    for made in found:
        broken = {**made, "spec": {**made["spec"], "replica": 3}}
        assert any("replica" in problem for problem in chart.problems(broken)), made["kind"]


@every_example
def test_every_container_is_hardened(name: str) -> None:
    found = list(pods(rendered(name)))
    assert found
    for _, spec in found:
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        user = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}
        assert spec["securityContext"] == {**user, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]


def test_a_shell_that_is_brought_along_is_let_in_where_pods_have_to_be_restricted() -> None:
    shown = re.findall(r"`(kubectl debug [^`]*)`", (ROOT / "docs" / "kubernetes.md").read_text())
    assert shown
    assert all("--profile=restricted" in command for command in shown)


def test_the_user_is_that_of_the_image() -> None:
    assert "USER 10001:10001" in (ROOT / "Dockerfile").read_text()


def test_secrets_are_in_secrets_and_nowhere_else() -> None:
    holders = [made for made in rendered("everything") if "hunter2" in json.dumps(made)]
    assert [made["kind"] for made in holders] == ["Secret"]
    assert "swordfish" not in json.dumps(rendered("everything")), "a URL in hatcast.toml is left out"


@every_example
def test_no_variable_has_a_value_of_its_own(name: str) -> None:
    for container in containers(name):
        assert all(set(each) == {"name", "valueFrom"} for each in container.get("env", []))
        assert all(set(each["valueFrom"]) == {"secretKeyRef"} for each in container.get("env", []))


@every_example
def test_the_map_and_the_feeds_know_neither_redis_nor_the_user_key(name: str) -> None:
    for labels, spec in pods(rendered(name)):
        if labels["app.kubernetes.io/component"] in ("display", "feed"):
            said = json.dumps(spec)
            assert not re.search(r"redis|HATCAST_USER_KEY|user-key|kafka-worker", said, re.IGNORECASE)


@every_example
def test_every_command_is_one_of_hatcast_with_options_that_it_has(name: str) -> None:
    for container in containers(name):
        words = ["hatcast", *container["args"]]
        assert problem_of(words) is None
        command: click.Command = hatcast
        rest = container["args"]
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), rest[0])
            assert found is not None
            command, rest = found, rest[1:]
        command.make_context("hatcast", list(rest))  # raises on a value that is not of the option's type


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        ([], []),
        (["--log-level=debug", "--accept-volatile-state"], ["--accept-volatile-state"]),
        (["--accept-volatile-state", "--accept-gap"], ["--accept-gap", "--accept-volatile-state"]),
    ],
)
def test_the_test_of_the_chart_accepts_what_the_workers_accept(
    given: list[str], passed_on: list[str], tmp_path: Path
) -> None:
    objects = render(changed("minimal", tmp_path, worker={"extraArgs": given}))
    (args,) = (
        spec["containers"][0]["args"] for _, spec in pods(objects) if spec["containers"][0]["args"][0] == "doctor"
    )
    assert args[2:] == passed_on


@every_example
def test_probes_ask_the_addresses_on_which_the_program_answers(name: str) -> None:
    for container in containers(name):
        served = {word.partition("=")[0]: word.partition("=")[2] for word in container["args"]}
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        if not ports:
            assert container["args"][0] == "doctor" or "--drain" in container["args"]
            continue
        assert served["--metrics-listen"] == f"0.0.0.0:{ports['metrics']}"
        assert served.get("--port", "") == str(ports.get("http", ""))
        probes = {kind: probe["httpGet"] for kind, probe in container.items() if kind.endswith("Probe")}
        assert probes["livenessProbe"] == {"path": "/livez", "port": "metrics"}
        assert all(probe["path"] in ("/livez", "/readyz") and probe["port"] in ports for probe in probes.values())
        if container["args"][0] == "worker":
            assert probes["readinessProbe"] == {"path": "/readyz", "port": "metrics"}


def test_the_program_answers_what_probes_and_prometheus_ask() -> None:
    server = OperatorServer(Address("127.0.0.1", 0), Process.WORKER, dict)
    answered = {resource.canonical for resource in server._listener.app.router.resources()}
    probes = {
        probe["httpGet"]["path"]
        for name in NAMES
        for container in containers(name)
        for kind, probe in container.items()
        if kind.endswith("Probe")
    }
    endpoints = [each for monitor in of_kind("strimzi", "ServiceMonitor") for each in monitor["spec"]["endpoints"]]
    assert probes | {each["path"] for each in endpoints} == answered


def test_workers_have_the_time_to_stop_in_order() -> None:
    for name in NAMES:
        graces = [
            spec["terminationGracePeriodSeconds"]
            for labels, spec in pods(rendered(name))
            if labels["app.kubernetes.io/component"] == "worker"
        ]
        assert graces
        assert min(graces) > STOP_SECONDS


@every_example
def test_hatcast_reads_the_configuration_of_each_role_and_its_policy_is_the_given_one(
    name: str, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for file, text in values(name).get("files", {}).items():
        (given / file).write_text(text)
    (given / "hatcast.toml").write_text(values(name)["config"])
    policy_id = load_settings(given / "hatcast.toml", {}).policy.policy_id
    for labels, spec in pods(rendered(name)):
        component: str = labels["app.kubernetes.io/component"]
        role = {"doctor": "worker", "feed": "feeds"}.get(component, component)
        environment = {
            variable["name"]: "rediss://secret:6379/0" if variable["name"] == "HATCAST_REDIS_URL" else "ab" * 32
            for variable in spec["containers"][0].get("env", [])
        }
        settings = settings_of(name, role, tmp_path, environment)
        assert settings.policy.policy_id == policy_id
        assert settings.listen is None, "the argument alone says it"
        assert (settings.redis.url == "rediss://secret:6379/0") is (role == "worker")
        mounted = [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]]
        paths = [settings.kafka.ssl_cafile, settings.kafka.ssl_certfile, settings.kafka.ssl_keyfile]
        paths += [settings.redis.ssl_ca_certs, settings.redis.ssl_certfile, settings.redis.ssl_keyfile]
        assert all(str(Path(path).parent) in mounted for path in paths if path is not None)


def test_login_and_tls_are_those_of_the_values(tmp_path: Path) -> None:
    worker, display = (settings_of("external", role, tmp_path).kafka for role in ("worker", "display"))
    assert (worker.security_protocol, worker.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (worker.sasl_plain_username, display.sasl_plain_username) == ("hatcast-worker", "hatcast-display")
    by_certificate = settings_of("strimzi", "feeds", tmp_path).kafka
    assert (by_certificate.security_protocol, by_certificate.sasl_mechanism) == ("SSL", None)
    assert by_certificate.ssl_certfile == "/etc/hatcast-kafka-user/user.crt"
    assert settings_of("minimal", "worker", tmp_path).kafka.security_protocol == "PLAINTEXT"


def test_strimzis_authority_is_its_own_secret_or_the_copy_in_another_namespace() -> None:
    for name, secret, key in (("strimzi", "city-cluster-ca-cert", "ca.crt"), ("everything", "city-ca-copy", "ca.pem")):
        for _, spec in pods(rendered(name)):
            (volume,) = (each["secret"] for each in spec["volumes"] if each["name"] == "kafka-ca")
            assert (volume["secretName"], volume["items"][0]["key"]) == (secret, key)


@pytest.mark.parametrize(
    ("before", "after", "restarted"),
    [
        ("upper_bound = 65.0", "upper_bound = 66.0", {"display", "worker"}),
        ("[policy]", '[display]\ntitle = "Surat"\n[policy]', {"display"}),
        ("[policy]", '[worker]\nidle_after = "9s"\n[policy]', {"worker"}),
    ],
)
def test_another_configuration_is_another_pod_of_those_who_read_it(
    before: str, after: str, restarted: set[str], tmp_path: Path
) -> None:
    def sums(objects: list[Object]) -> set[tuple[str, str]]:
        return {
            (
                made["metadata"]["labels"]["app.kubernetes.io/component"],
                made["spec"]["template"]["metadata"]["annotations"]["checksum/config"],
            )
            for made in objects
            if made["kind"] == "Deployment"
        }

    config = values("minimal")["config"]
    other = render(changed("minimal", tmp_path, config=config.replace(before, after, 1)))
    assert {component for component, _ in sums(other) - sums(rendered("minimal"))} == restarted


def test_another_password_in_the_url_of_redis_is_another_pod_and_the_sum_tells_nothing_of_it(tmp_path: Path) -> None:
    def annotations(url: str) -> Object:
        objects = render(changed("everything", tmp_path, redis={"url": url}))
        (worker,) = (made for made in objects if made["kind"] == "Deployment" and "worker" in made["metadata"]["name"])
        found: Object = worker["spec"]["template"]["metadata"]["annotations"]
        return found

    url = values("everything")["redis"]["url"]
    before, after, again = annotations(url), annotations(url.replace("hunter2", "hunter3")), annotations(url)
    assert before == again
    assert before["checksum/redis"] != after["checksum/redis"]
    assert before["checksum/config"] == after["checksum/config"]
    guesses = (f"{prefix}{url}" for prefix in ("", "surat", "city/surat"))
    assert before["checksum/redis"] not in {hashlib.sha256(guess.encode()).hexdigest() for guess in guesses}
    assert "derivePassword" in (CHART / "templates" / "_pod.tpl").read_text(), "slow, and another one in each release"


def test_the_image_is_that_of_the_version_or_of_a_digest() -> None:
    assert {container["image"] for container in containers("minimal")} == {f"hatcast:{VERSION}"}
    assert all("@sha256:" in container["image"] for container in containers("external"))


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"config": ""}, "config: is empty; give the text of hatcast.toml"),
        ({"config": "a = ["}, "config: is not TOML"),
        ({"config": "[policy]\n"}, "config: has no policy.name"),
        ({"kafka": {"bootstrapServers": ""}}, "kafka.bootstrapServers: is empty; write host:port"),
        ({"redis": {"existingSecret": {"name": ""}}}, "redis.existingSecret.name: is empty; name a Secret"),
        ({"redis": {"url": "redis://r:6379"}}, "redis.url: stands beside redis.existingSecret.name"),
        ({"kafka": {"sasl": {"mechanism": "PLAIN"}}}, "kafka.users.worker.secret: is empty"),
        ({"display": {"ingress": {"enabled": True, "host": "m"}}}, "display.ingress.tlsSecret: is empty"),
        ({"strimzi": {"enabled": True}}, "strimzi.cluster: is empty"),
        (
            {"strimzi": {"enabled": True, "cluster": "c", "namespace": "kafka"}},
            "kafka.tls.caSecret.name: is empty; Strimzi's authority is a Secret of namespace kafka, which pods of city",
        ),
        ({"feeds": [{"name": "a", "args": ["mqtt"]}] * 2}, "feeds: two are named a"),
        ({"feeds": [{"name": "a", "args": ["synthetic"]}]}, "feeds: args of a begin with synthetic; write amqp"),
        (
            {"worker": {"autoscaling": {"minReplicas": 0}}},
            "at '/worker/autoscaling/minReplicas': minimum: got 0, want 1",
        ),
        ({"kafka": {"bootstrapServer": "k:9092"}}, "at '/kafka': additional properties 'bootstrapServer' not allowed"),
        ({"redis": {"url": "http://r"}}, "at '/redis/url'"),
        ({"worker": {"extraArgs": ["--config=x"]}}, "worker.extraArgs: --config=x is set by the chart"),
        (
            {"worker": {"drain": True}, "feeds": [{"name": "a", "args": ["mqtt"]}]},
            "worker.drain: ends when no feed sends; write feeds: []",
        ),
        ({"feeds": [{"name": "a", "args": ["mqtt", "--for=9"]}]}, "feeds: --for=9 of a is set by the chart"),
    ],
)
def test_wrong_values_are_one_line_that_names_them(tables: Object, said: str, tmp_path: Path) -> None:
    path = changed("minimal", tmp_path, **tables)
    done = run_helm(path)
    assert done.returncode == chart.REJECTED
    assert said in done.stdout


def test_every_value_has_a_meaning_and_the_schema_knows_it() -> None:
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    named = {name for name, _, _ in chart_values.rows(text)}

    def leaves(table: Object, known: Object, path: str) -> Iterator[str]:
        assert table.keys() <= known["properties"].keys(), path
        for key, value in table.items():
            name = f"{path}{key}"
            if isinstance(value, dict) and known["properties"][key].get("properties") and name not in named:
                yield from leaves(value, known["properties"][key], f"{name}.")
            else:
                yield name

    assert set(leaves(yaml.safe_load(text), schema, "")) == named
