"""Every role with the privileges that `hatcast acls` prints, on a Kafka and a Redis that deny the rest."""

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from hatcast.agents.cli.acls import lines
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.grants import Role, check_permissions
from hatcast.stream.errors import HatcastError
from tests.devices import recording, two_hours
from tests.integration.city_roles import PASSWORDS, USER_KEY, WITH_REDIS, City, open_city
from tests.integration.guarded import Guarded, Privilege, certificate_tables, open_guarded
from tests.integration.harness import open_pipeline
from tests.integration.tables import merged
from tests.services.lifecycle import wait_until
from tests.services.tls import make_client_certificate

PRIVACY: Final = {"epsilon": None, "max_hats_per_day": None, "daily_limit": 5.0}
TRACKER: Final = {"policy": {"estimator": {"name": "tracker"}, "privacy": PRIVACY}}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with open_guarded(tmp_path_factory.mktemp("guarded")) as made:
        made.scram_users(PASSWORDS)
        yield made


@pytest.fixture(scope="module")
def city(guarded: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[City]:
    with open_city(guarded, tmp_path_factory.mktemp("city")) as made:
        yield made


def test_with_client_certificates_a_tracker_publishes_estimates(guarded: Guarded, tmp_path: Path) -> None:
    with open_pipeline(guarded.kafka, guarded.redis_server, tmp_path, "certificates", TRACKER) as pipeline:
        configs = {}
        for role in (Role.WORKER, Role.FEED):
            name = f"certified-{role}"
            (tmp_path / f"{name}-password").write_text(PASSWORDS[role])
            own = make_client_certificate(guarded.folder, name)
            made = certificate_tables(guarded, own, f"CN={name}", f"{name}-password")
            configs[role] = pipeline.changed(made, f"{role}.toml")
            guarded.apply(lines(pipeline.settings, role, f"CN={name}"), PASSWORDS[role])
        worker = pipeline.worker(config=configs[Role.WORKER])
        pipeline.wait_for_partitions(worker)
        file = recording(tmp_path / "city.jsonl", two_hours(["a", "b", "c"]))
        pipeline.run("feed", "replay", file, "--format", "jsonl", "--speedup", 0, config=configs[Role.FEED])
        topic = pipeline.settings.topics.estimates
        pipeline.wait(lambda: bool(guarded.kafka.read(topic)), "estimates", worker)
        assert worker.terminate() == 0
        decisions = guarded.decisions()
        ours = {each for each in decisions if each.user.startswith("CN=certified-")}
        assert {each for each in ours if not each.allowed} == set()
        assert {("CN=certified-worker", "WRITE", topic), ("CN=certified-worker", "READ", "hatcast-estimates")} & {
            (each.user, each.operation, each.name) for each in ours
        }


def test_every_role_works_with_its_privileges_and_asks_for_no_other(city: City) -> None:
    # Kafka also looks whether it may list the operations on the cluster, which doctor does not use.
    denied = {each for each in city.guarded.decisions() if not each.allowed and each.request != "DescribeCluster"}
    assert denied == set()
    with closing(city.guarded.redis_server.client()) as redis:
        # redis-py tells newer servers its version, and goes on without.
        assert {entry["object"] for entry in redis.acl_log()} <= {"client|setinfo"}


def test_every_privilege_is_used_so_none_is_too_many(city: City) -> None:
    decisions = city.guarded.decisions()
    unused = {
        (role.value, each.operation, each.name.replace(city.pipeline.name, "T"))
        for role, granted in city.granted.items()
        for each in granted
        if not each.is_used_by(decisions)
    }
    assert unused == {
        ("worker", "Read", "T.queries"),  # only if a policy of this telemetry has published answers, which it recovers
    }


def test_every_command_that_redis_allows_a_role_is_sent_by_it(city: City) -> None:
    sent = city.guarded.redis_log.sent()
    assert {role: sent[role] - city.commands[role] for role in WITH_REDIS} == {role: set() for role in WITH_REDIS}
    unsent = {(role.value, command) for role in WITH_REDIS for command in city.commands[role] - sent[role]}
    by_silence = {(role.value, "ping") for role in WITH_REDIS}  # sent only after half a minute of silence
    assert unsent - by_silence == {
        ("worker", "mget"),  # chunks of a partition that is loaded again
        ("worker", "sismember"),  # a recovery that discards a record
        ("cluster", "script|load"),  # a worker has run the scripts before
        ("worker", "hexists"),  # answers to queries over days: test_queries.py
        ("operator", "script|load"),  # Redis was restarted, and no worker has run the script since
        ("operator", "config|get"),  # `doctor` on a Redis without an append-only file: test_doctor.py
    }


def test_a_role_that_lacks_a_privilege_on_a_topic_or_group_is_told_which_in_one_line(city: City) -> None:
    roles = (Role.WORKER, Role.FEED, Role.DISPLAY, Role.DEVICE)
    tried = 0
    for role in roles:
        settings = city.settings(role)
        check_permissions(settings, role)
        for each in city.granted[role]:
            if each.operation == "Create" or each.kind == "transactional-id":
                continue
            with without(city.guarded, [each]):
                error = refusal(settings, role)
            assert f" on {each.kind} {each.name}" in error
            assert each.operation in error
            assert error.endswith(f": `hatcast acls {role}` prints all that it needs")
            assert "\n" not in error
            tried += 1
    assert tried > 25


def test_a_user_without_any_privilege_is_told_all_in_one_line(city: City) -> None:
    with without(city.guarded, city.granted[Role.DISPLAY]):
        wait_until(
            lambda: refusal(city.settings(Role.DISPLAY), Role.DISPLAY).count("Read on") == 6, None, 20, "refusal"
        )
        done = city.run(Role.DISPLAY, "display", "--port", 0, code=1)
    topics = city.pipeline.settings.topics
    for name in (topics.means, topics.budget, topics.estimates, topics.queries, topics.running, topics.clusters):
        assert f"Read on topic {name}" in done.err
    assert done.err.count("\n") == 1


def test_a_clustering_that_may_not_publish_its_result_charges_nothing(city: City) -> None:
    clusters = city.pipeline.settings.topics.clusters
    (write,) = [each for each in city.granted[Role.CLUSTER] if (each.operation, each.name) == ("Write", clusters)]
    before = city.pipeline.budget_records()
    with without(city.guarded, [write]):
        assert refusal(city.settings(Role.CLUSTER), Role.CLUSTER).count(" on topic ") == 1
        done = city.cluster("refused.db", code=1)()
    assert f"denies this user Write on topic {clusters}: `hatcast acls cluster` prints" in done.err
    assert city.pipeline.budget_records() == before


def test_a_worker_that_may_not_use_its_transactional_ids_says_so(city: City) -> None:
    (ids,) = [each for each in city.granted[Role.WORKER] if each.kind == "transactional-id"]
    with without(city.guarded, [ids]):
        worker = city.pipeline.worker(config=city.configs[Role.WORKER])
        said = "this user may not use a transactional id: see `hatcast acls`"
        city.pipeline.wait(lambda: said in worker.logged(), "line of the log", worker)
        assert worker.terminate() == 0


@contextmanager
def without(guarded: Guarded, privileges: Sequence[Privilege]) -> Iterator[None]:
    """Take privileges away, and give them back."""
    guarded.revoke(privileges)
    try:
        yield
    finally:
        guarded.give(privileges)


def refusal(settings: Settings, role: Role) -> str:
    """The error of a role that lacks a privilege, once the broker knows it."""
    found: list[str] = []

    def is_denied() -> bool:
        try:
            check_permissions(settings, role)
        except HatcastError as error:
            found.append(str(error))
        return bool(found)

    wait_until(is_denied, None, 20, "refusal")
    return found[0]


def test_no_secret_is_in_a_log_an_output_or_a_process_list(city: City) -> None:
    files = [path for pattern in ("*.log", "*.out", "*.err") for path in city.pipeline.folder.glob(pattern)]
    said = "".join(path.read_text(errors="replace") for path in files) + "".join(city.command_lines)
    assert "partition started" in said
    assert all(name in "".join(city.command_lines) for name in ("display", "device"))
    keys = [path.read_text().splitlines()[1] for path in city.guarded.folder.glob("*.key")]
    assert [secret for secret in (*PASSWORDS.values(), USER_KEY, *keys) if secret in said] == []


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ({"kafka": {"sasl_plain_password_file": "wrong"}}, "rejects the login"),
        ({"redis": {"password_file": "wrong"}}, "rejects the login"),
        ({"redis": {"url": "rediss://:s3cret-wrong@127.0.0.1:port/0"}}, "redis.url: has no valid port"),
        ({"redis": {"url": "http://:s3cret-wrong@127.0.0.1/0"}}, "redis.url: is not a Redis URL"),
        ({"worker": {"user_key_file": "wrong"}}, "the user key is not 32 bytes"),
    ],
)
def test_no_error_has_a_secret_in_it(city: City, table: dict[str, dict[str, str]], found: str) -> None:
    pipeline = city.pipeline
    (pipeline.folder / "wrong").write_text("s3cret-wrong")
    made = merged(tomllib.loads(city.configs[Role.WORKER].read_text()), table)
    done = pipeline.hatcast("worker", "--log-level", "debug", config=pipeline.write(made, "wrong.toml"))
    assert done.code == 1
    assert found in done.err
    assert "s3cret" not in done.err + done.out
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("role", "arguments"),
    [
        (Role.FEED, ("feed", "gtfs-rt", "http://u:s3cret-wrong@127.0.0.1:1/x?key=s3cret-wrong", "--for", 1)),
        (Role.FEED, ("feed", "siri", "ftp://u:s3cret-wrong@127.0.0.1:1/x")),
        (Role.DEVICE, ("device", "--mqtt", "mqtt://u:s3cret-wrong@127.0.0.1:1/x", "--vehicle", "a", "--for", 1)),
    ],
)
def test_no_error_of_a_source_has_the_password_of_its_address(
    city: City, role: Role, arguments: Sequence[object]
) -> None:
    state = ("--state", city.pipeline.folder / "mqtt.db") if role is Role.DEVICE else ()
    done = city.pipeline.hatcast(*arguments, *state, config=city.configs[role], timeout=60)
    assert done.code != 0
    assert "s3cret" not in done.err + done.out
