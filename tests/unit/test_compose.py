"""docker-compose.yml, as far as it can be checked without Docker: profiles, commands, hardening, and its feeds."""

import re
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml
from click.testing import CliRunner

from hatcast.agents.cli import hatcast
from hatcast.agents.config.settings import load_settings
from hatcast.agents.worker.stopping import STOP_SECONDS
from tests.services.data import ROOT

TEXT: Final = (ROOT / "docker-compose.yml").read_text()
SERVICES: Final[dict[str, dict[str, Any]]] = yaml.safe_load(TEXT)["services"]
OURS: Final = {name: service for name, service in SERVICES.items() if service["image"].startswith("hatcast:")}
REAL: Final = ROOT / "examples" / "real.toml"
every_service = pytest.mark.parametrize("name", SERVICES)


def started(*profiles: str) -> set[str]:
    """The services that `docker compose --profile ... up` starts."""
    return {name for name, each in SERVICES.items() if not each.get("profiles") or {*each["profiles"]} & {*profiles}}


def test_a_real_city_and_a_synthetic_one_are_never_started_together_unless_both_are_named() -> None:
    base = {"kafka", "redis", "worker", "display", "prometheus", "grafana"}
    assert started() == base
    assert started("city") == base | {"feed"}
    assert started("real") == base | {"bridge"}


@pytest.mark.parametrize("name", OURS)
def test_every_command_is_one_of_hatcast_with_values_that_it_takes(name: str) -> None:
    words = [
        re.sub(r"\$\{HATCAST_GTFS_RT_URL:-\}", "https://city.example/vp.pb", word) for word in OURS[name]["command"]
    ]
    command: click.Command = hatcast
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None
        command, words = found, words[1:]
    command.make_context(name, words)  # raises on an option that there is not, or a value of another type


def test_a_real_feed_without_its_address_ends_with_a_line_that_names_the_variable() -> None:
    command = [word.replace("${HATCAST_GTFS_RT_URL:-}", "") for word in OURS["bridge"]["command"]]
    done = CliRunner().invoke(hatcast, command)
    assert done.exit_code == 2
    assert done.output.splitlines()[-1].startswith("Error: the address is empty")
    assert "HATCAST_GTFS_RT_URL" in done.output.splitlines()[-1]


def test_no_variable_stops_those_who_do_not_need_it() -> None:
    # Compose fills in the whole file, also services of profiles that are not started.
    assert set(re.findall(r"\$\{(\w+)(?::-[^}]*)?\}", TEXT)) == {"HATCAST_CONFIG", "HATCAST_GTFS_RT_URL"}
    assert not re.search(r"\$\{\w+:?\?", TEXT)


def test_the_real_city_shares_neither_topics_nor_policy_with_the_synthetic_one() -> None:
    city, real = load_settings(ROOT / "hatcast.toml", {}), load_settings(REAL, {})
    assert not set(city.topics.names) & set(real.topics.names)
    assert city.policy.name != real.policy.name
    assert real.topics.telemetry_format == "jsonl", "what bridges send"
    assert str(REAL.relative_to(ROOT)) in TEXT


def test_prometheus_finds_both_feeds() -> None:
    scraped = yaml.safe_load((ROOT / "ops" / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"]
    (job,) = (each for each in scraped if each["job_name"] == "hatcast-bridge")
    assert job["dns_sd_configs"][0]["names"] == ["feed", "bridge"]


@every_service
def test_every_service_is_hardened_and_on_the_loopback_only(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"].partition(":")[0] not in ("", "0")
    assert service["mem_limit"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_a_worker_has_the_time_to_stop_in_order() -> None:
    given = re.fullmatch(r"(\d+)(s|m)", SERVICES["worker"]["stop_grace_period"])
    assert given is not None
    assert int(given[1]) * {"s": 1, "m": 60}[given[2]] > STOP_SECONDS


def test_redis_refuses_writes_before_its_container_is_full_even_while_it_rewrites_its_file() -> None:
    redis = SERVICES["redis"]
    options = dict(zip(redis["command"][1::2], redis["command"][2::2], strict=True))
    assert (options["--maxmemory-policy"], options["--appendonly"], redis["mem_limit"]) == ("noeviction", "yes", "1g")
    assert options["--maxmemory"].endswith("mb")
    assert 0 < int(options["--maxmemory"].removesuffix("mb")) <= 0.6 * 1024


def test_every_file_that_is_mounted_exists() -> None:
    mounted = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    files = {path for path in mounted if path.startswith("./")} | {"./hatcast.toml"}
    assert {path for path in files if not Path(ROOT, path).exists()} == set()
