"""What people look for in a repository is there and true: metadata, files, workflows, the format of an erratum."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.services.data import ROOT
from tools.publish import FILES, notes_of, source_of, with_absolute_links

PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION: Final[dict[str, Any]] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PUBLIC_CODE: Final[dict[str, Any]] = yaml.safe_load((ROOT / "publiccode.yml").read_text())
WORKFLOWS: Final = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
JOBS: Final = {f"{file} {name}": job for file, flow in WORKFLOWS.items() for name, job in flow["jobs"].items()}
SOURCE, SITE = "https://host.example/city/hatcast", "https://city.example/hatcast"
ERRATA: Final = (ROOT / "docs/errata.md").read_text()


def test_the_files_have_one_version_one_licence_and_one_address() -> None:
    assert CITATION["version"] == PUBLIC_CODE["softwareVersion"] == PROJECT["version"]
    assert CITATION["license"] == PUBLIC_CODE["legal"]["license"] == PROJECT["license"]
    assert CITATION["repository-code"] == PUBLIC_CODE["url"] == PROJECT["urls"]["Source"]
    assert len(PUBLIC_CODE["description"]["en"]["shortDescription"]) <= 150
    assert 150 <= len(PUBLIC_CODE["description"]["en"]["longDescription"]) <= 10_000


def test_a_repository_without_its_own_addresses_publishes_nothing_and_no_other_file_has_one() -> None:
    texts = {name: (ROOT / name).read_text() for name in FILES}
    own = {
        name: text.replace("https://docs.hatcast.invalid", SITE).replace("https://hatcast.invalid", SOURCE)
        for name, text in texts.items()
    }
    assert source_of(own) == SOURCE
    for name in FILES:
        with pytest.raises(SystemExit, match=f"^{name}: write the repository's"):
            source_of(own | {name: texts[name]})
    others = [path for path in (ROOT / "docs").rglob("*.md") if "hatcast.invalid" in path.read_text()]
    assert others == []


def test_the_long_description_has_no_link_that_only_a_repository_can_follow() -> None:
    text = with_absolute_links((ROOT / "README.md").read_text(), SOURCE, "v1.2.3")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 40
    assert [each for each in targets if not each.startswith(("https://", "#"))] == []
    assert f"]({SOURCE}/raw/v1.2.3/docs/figures/map.png)" in text
    assert f"]({SOURCE}/blob/v1.2.3/docs/feeds.md#your-own-csv-parquet-or-json-lines)" in text


def test_the_notes_of_a_release_are_its_section_and_one_without_a_date_is_refused() -> None:
    text = "# Changelog\n\n## 0.2.0 (2027-01-02)\n\nNew.\n\n### To know\n- x\n\n## 0.1.0 (2026-12-01)\n\nOld.\n"
    assert notes_of(text, "0.2.0") == "New.\n\n### To know\n- x\n"
    assert notes_of(text, "0.1.0") == "Old.\n"
    with pytest.raises(SystemExit, match="no section"):
        notes_of("## 0.1.0 (unreleased)\n\nx\n", "0.1.0")


@pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))
def test_a_job_runs_what_exists_with_actions_of_a_version_and_keeps_no_credentials(job: dict[str, Any]) -> None:
    for step in job["steps"]:
        uses = step.get("uses", "")
        assert not uses or re.search(r"(@v\d+|@release/v\d+|:\d[\d.]+)$", uses), uses
        if uses.startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False
        for name in re.findall(r"(?:^|\s)((?:\.ci|scripts|ops|tools)/[\w./-]+)", step.get("run", "")):
            assert (ROOT / name).exists(), name
        for module in re.findall(r"python -m (tools\.\w+)", step.get("run", "")):
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module
        # An expression in a shell line is replaced before the shell reads it: a branch's name could be a command.
        assert "${{" not in step.get("run", "")


def test_workflows_may_only_read_and_those_jobs_write_that_publish() -> None:
    assert set(WORKFLOWS) == {"ci.yml", "release.yml"}
    assert all(flow["permissions"] == {"contents": "read"} for flow in WORKFLOWS.values())
    writing = {
        name: {k for k, v in job["permissions"].items() if v == "write"}
        for name, job in JOBS.items()
        if "permissions" in job
    }
    assert {name for name, rights in writing.items() if "contents" in rights} == {"release.yml notes"}
    assert writing["release.yml pypi"] == {"id-token"}
    assert not any("secrets." in json.dumps(flow) for flow in WORKFLOWS.values())
    assert ".ci/run" in [step.get("run") for step in JOBS["ci.yml run"]["steps"]]


def test_a_released_chart_names_the_released_image() -> None:
    (script,) = (step["run"] for step in JOBS["release.yml chart"]["steps"] if "helm package" in step.get("run", ""))
    (line,) = re.findall(r"s\|\^(.*?)\$\|", script)
    assert (ROOT / "ops/helm/hatcast/values.yaml").read_text().splitlines().count(line) == 1
    chart = yaml.safe_load((ROOT / "ops/helm/hatcast/Chart.yaml").read_text())
    assert chart["appVersion"] == PROJECT["version"]  # the image's tag, where none is given
    (build,) = (step["with"] for step in JOBS["release.yml image"]["steps"] if "build-push" in step.get("uses", ""))
    assert build["tags"] == "${{ steps.name.outputs.image }}:${{ steps.name.outputs.version }}"


def test_every_issue_form_asks_for_something_and_warns_of_real_telemetry() -> None:
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")}
    assert set(forms) == {"bug", "config", "feature"}
    assert all(any(part.get("validations") for part in forms[name]["body"]) for name in ("bug", "feature"))
    assert "no telemetry of real vehicles" in forms["bug"]["body"][0]["attributes"]["value"]


SCHEMA: Final = json.loads((ROOT / "examples/errata.schema.json").read_text())
EXAMPLE: Final[dict[str, object]] = json.loads(re.findall(r"```json\n(.*)\n```", ERRATA)[0])


def test_the_erratum_of_the_page_is_one_and_one_about_a_value_is_not() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    checker = Draft202012Validator(SCHEMA)
    assert checker.is_valid(EXAMPLE)
    assert set(SCHEMA["properties"]) == set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", ERRATA, re.M))))
    assert not checker.is_valid(EXAMPLE | {"fault": "mean_too_low"})
    assert not checker.is_valid(EXAMPLE | {"true_mean": 24.1})


def test_the_query_of_the_page_leaves_out_the_hours_and_hexagons_that_were_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(number: int, slot: str, **more: object) -> dict[str, object]:
        return EXAMPLE | {"errata_id": f"surat-speed/{number}", "slots": [slot], **more}

    a, b = "87608b0d2ffffff", "87608b0d3ffffff"
    errata = [
        line(1, "2022-01-02T09:00"),
        line(2, "2022-01-02T10:00", cells=[a]),
        line(3, "2022-01-02T11:00"),
        line(3, "2022-01-02T11:00", withdrawn=True, published_at="2022-01-03T08:00:00Z"),
        line(4, "2022-01-02T12:00", policy="another"),
    ]
    assert all(Draft202012Validator(SCHEMA).is_valid(each) for each in errata)
    (tmp_path / "errata.jsonl").write_text("".join(json.dumps(each) + "\n" for each in errata))
    monkeypatch.chdir(tmp_path)
    names = [(f"surat-speed/2022-01-02T{hour}:00/{cell}", cell) for hour in ("09", "10", "11", "12") for cell in (a, b)]
    with duckdb.connect() as database:
        database.execute("CREATE TABLE releases (release_id VARCHAR, cell VARCHAR)")
        database.executemany("INSERT INTO releases VALUES (?, ?)", names)
        left = database.execute(re.findall(r"```sql\n(.*?)```", ERRATA, re.S)[0]).fetchall()
    assert sorted(left) == sorted([names[3], *names[4:]])


def test_valkey_is_named_and_tested_beside_redis() -> None:
    for name in ("docker-compose.yml", "ops/helm/hatcast/values.yaml", "docs/operations.md", "CHANGELOG.md"):
        assert "Valkey" in (ROOT / name).read_text(), name
    tested = (ROOT / ".ci/run").read_text().replace("\\\n", "")
    (line,) = re.findall(r"^run env HATCAST_TEST_WITHOUT=redis-server scripts/test (.*)$", tested, re.M)
    files = re.findall(r"tests/\S+", line)
    assert {"tests/integration/test_pipeline.py", "tests/integration/test_redis_cluster.py"} <= set(files)
    assert [name for name in files if not (ROOT / name).is_file()] == []
