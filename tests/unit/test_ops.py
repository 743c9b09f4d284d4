"""What operators are given: alerts and panels name metrics that exist, and every alert says what to do."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hatcast.agents.monitoring.declarations import METRICS, POLICY, Process
from tests.promql import named
from tests.services.absent import find_program
from tests.services.data import ROOT

PROMETHEUS: Final = ROOT / "ops" / "prometheus"
DASHBOARD: Final[dict[str, Any]] = json.loads((ROOT / "ops" / "grafana" / "hatcast.json").read_text())
ALERTS: Final[list[dict[str, Any]]] = [
    rule for group in yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
TESTS: Final[list[dict[str, Any]]] = [
    test for path in PROMETHEUS.glob("*_test.yaml") for test in yaml.safe_load(path.read_text())["tests"]
]
RUNBOOK: Final = (ROOT / "docs" / "runbook.md").read_text()
OPERATORS: Final = {"container", "endpoint", "namespace", "pod", "service"}  # labels that Prometheus' operator adds
SCRAPED: Final = {"instance", "job"} | OPERATORS  # labels that Prometheus adds
OTHERS: Final = {"up", "ALERTS", "process_cpu_seconds_total", "process_resident_memory_bytes"}
SHOWN: Final = {
    name: {label.name for label in metric.labels}
    | SCRAPED
    | ({"le"} if suffix else set())
    | ({POLICY.name} if Process.WORKER in metric.processes else set())
    for metric in METRICS
    for suffix in (("_bucket", "_sum", "_count") if metric.buckets else ("",))
    for name in [metric.name + suffix]
}

every_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])


def expressions(node: object) -> Iterator[str]:
    """Every `expr` of the dashboard, wherever it stands."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "expr":
                yield value
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for each in node:
            yield from expressions(each)


def unknown(expression: str) -> set[str]:
    """Metrics that nobody declares, and labels that no metric of the expression has."""
    metrics = {name: labels for name, labels in named(expression).items() if name not in OTHERS}
    labels = {label for of_one in metrics.values() for label in of_one}
    known = set().union(*(SHOWN.get(name, set()) for name in metrics))
    return {name for name in metrics if name not in SHOWN} | (labels - known if metrics else set())


def promtool(*arguments: object, folder: Path) -> "subprocess.CompletedProcess[str]":
    program = find_program("promtool", package="prometheus")
    return subprocess.run([program, *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("up == 0", {"up": set()}),
        ('up{a!~"b|c",d=~"e", f="g"}', {"up": {"a", "d", "f"}}),
        ('sum(rate(a_total{x="b(c)", y!="d"}[5m])) / 3', {"a_total": {"x", "y"}}),
        (
            "sum by (le, z) (rate(a_bucket[10m])) and on (job) b > 1",
            {"a_bucket": {"le", "z", "job"}, "b": {"le", "z", "job"}},
        ),
        ("time() - max without (p) (c_seconds)", {"c_seconds": {"p"}}),
        ("histogram_quantile(0.99, h) or vector(0)", {"h": set()}),
    ],
)
def test_the_names_in_an_expression_are_found(expression: str, found: dict[str, set[str]]) -> None:
    assert named(expression) == found


@every_alert
def test_every_alert_names_metrics_and_labels_that_exist(alert: dict[str, Any]) -> None:
    assert named(alert["expr"])
    assert unknown(alert["expr"]) == set()


def test_a_metric_or_label_that_is_not_declared_is_seen() -> None:
    assert unknown("sum(hatcast_reading_total)") == {"hatcast_reading_total"}
    assert unknown('hatcast_ready{parts="redis"}') == {"parts"}


@every_alert
def test_every_alert_says_what_it_means_and_what_to_do(alert: dict[str, Any]) -> None:
    said = alert["annotations"]
    assert said.keys() == {"summary", "description", "runbook_url"}
    assert said["description"].endswith(".")
    assert len(said["description"]) > 80
    assert alert["labels"]["severity"] in {"info", "warning", "critical"}
    labels = set(re.findall(r"\$labels\.(\w+)", said["summary"] + said["description"]))
    assert labels <= set().union(*(SHOWN.get(name, SCRAPED) for name in named(alert["expr"])))


@every_alert
def test_every_alert_has_a_section_of_the_runbook(alert: dict[str, Any]) -> None:
    name = alert["alert"]
    assert alert["annotations"]["runbook_url"] == f"{{{{ $externalLabels.runbook }}}}#{name.lower()}"
    section = RUNBOOK.partition(f"\n### {name}\n")[2].partition("\n##")[0]
    assert all(word in section for word in ("Means:", "Look at:", "Do:")), "write a section"


def test_the_runbook_has_no_section_of_an_alert_that_is_gone() -> None:
    assert set(re.findall(r"\n### (Hatcast\w+)\n", RUNBOOK)) == {alert["alert"] for alert in ALERTS}


@every_alert
def test_every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(alert: dict[str, Any]) -> None:
    name = alert["alert"]
    found = {}
    for test in TESTS:
        title, _, _ = test["name"].partition(":")
        (asked,) = test["promql_expr_test"]
        if f'alertname="{name}"' in asked["expr"]:
            found[title.removeprefix(f"{name} ")] = bool(asked["exp_samples"])
            assert test["input_series"]
    assert found == {"fires": True, "does not fire": False}


def in_kubernetes(series: list[dict[str, str]], namespace: str) -> Iterator[dict[str, str]]:
    """Series with the labels that Prometheus' operator adds: each instance is a pod, each job has a Service."""
    for each in series:
        job, instance = (re.findall(rf'{label}="([^"]*)"', each["series"])[0] for label in ("job", "instance"))
        added = f'namespace="{namespace}",service="{job}",pod="{instance}",container="hatcast",endpoint="metrics"'
        yield {**each, "series": each["series"].replace("{", f"{{{added},")}


def beside_each_other(firing: dict[str, Any], silent: dict[str, Any]) -> dict[str, Any]:
    """The series of two tests in one Prometheus, as those of two namespaces: the alert is that of the first alone."""
    asked = []
    for test, namespace in ((firing, "one"), (silent, "two")):
        (question,) = test["promql_expr_test"]
        alerts = f'ALERTS{{alertstate="firing", namespace=~"{namespace}|"}}'
        expected = [{"labels": '{namespace="one"}', "value": 1}] if test is firing else []
        moment = {"eval_time": question["eval_time"], "exp_samples": expected}
        asked.append({"expr": f"group by (namespace) ({alerts})", **moment})
    return {
        "name": f"{firing['name']}, beside: {silent['name']}",
        "interval": firing["interval"],
        "input_series": [
            *in_kubernetes(firing["input_series"], "one"),
            *in_kubernetes(silent["input_series"], "two"),
        ],
        "promql_expr_test": asked,
    }


def test_no_release_in_kubernetes_fires_or_hides_the_alert_of_another_namespace(tmp_path: Path) -> None:
    alone = [test for test in TESTS if "namespace=" not in str(test["input_series"])]
    for alert in ALERTS:
        name = alert["alert"]
        firing, silent = (
            [test for test in alone if test["name"].startswith(f"{name} {does}:")]
            for does in ("fires", "does not fire")
        )
        made = [beside_each_other(one, two) for one in firing for two in silent]
        assert made
        rules = {"groups": [{"name": name, "rules": [alert]}]}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(rules))
        asked = {"rule_files": [f"{name}.yaml"], "evaluation_interval": "1m", "tests": made}
        (tmp_path / f"{name}_test.yaml").write_text(yaml.safe_dump(asked))
    done = promtool("test", "rules", *(path.name for path in sorted(tmp_path.glob("*_test.yaml"))), folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_and_rests_as_its_tests_say() -> None:
    done = promtool("test", "rules", *(path.name for path in sorted(PROMETHEUS.glob("*_test.yaml"))), folder=PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_series_in_the_tests_of_alerts_exists() -> None:
    for test in TESTS:
        for each in test["input_series"]:
            assert unknown(each["series"]) == set(), test["name"]


def test_the_runbook_of_an_alert_is_an_absolute_address_that_is_set_in_one_place() -> None:
    labels = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text())["global"]["external_labels"]
    assert labels == {"runbook": "http://127.0.0.1:8000/runbook/"}, "where scripts/docs serves it"
    assert "`external_labels`" in RUNBOOK


@every_alert
def test_an_alert_on_a_worker_is_of_one_policy(alert: dict[str, Any]) -> None:
    of_workers = {name for name in named(alert["expr"]) if "policy" in SHOWN.get(name, ())}
    if not of_workers or any("display" in name for name in named(alert["expr"])):
        return  # the map shows the releases of all policies
    groups = re.findall(r"\b(?:sum|max|min|count)\s*(by \([^)]*\)|without \([^)]*\)|\()", alert["expr"])
    assert [each for each in groups if not re.match(r"by \(.*\b(policy|instance)\b|without", each)] == []


def test_what_is_scraped_and_watched_is_well_formed() -> None:
    done = promtool("check", "config", "prometheus.yaml", folder=PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = {each["job_name"] for each in yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text())["scrape_configs"]}
    asked = {job for alert in ALERTS for job in re.findall(r'job="([\w-]+)"', alert["expr"])}
    assert asked <= jobs


def test_every_panel_shows_metrics_that_exist() -> None:
    shown = list(expressions(DASHBOARD))
    assert len(shown) > 40
    assert {expression: unknown(expression) for expression in shown if unknown(expression)} == {}


def test_every_metric_of_a_worker_is_on_the_dashboard() -> None:
    shown = " ".join(expressions(DASHBOARD))
    about = {"hatcast_build_info", "hatcast_policy_info"}
    of_workers = {metric.name for metric in METRICS if Process.WORKER in metric.processes}
    assert {name for name in of_workers if name not in shown} == about


def test_every_panel_says_what_it_shows_and_has_a_place_of_its_own() -> None:
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["description"].endswith(".") and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    taken = set[tuple[int, int]]()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_prometheus_understands_every_panel(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "1m")}
        for number, expression in enumerate(expressions(DASHBOARD))
    ]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", "panels.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
