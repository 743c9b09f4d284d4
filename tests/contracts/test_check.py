"""Types, schemas, AsyncAPI document and goldens agree; and the check that says so goes red where they do not."""

import json
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.contracts.check import (
    FROZEN,
    Problems,
    coverage_problems,
    digest,
    document_problems,
    frozen_problems,
    golden_problems,
    header_problems,
    message_problems,
    schema_problems,
)
from tests.contracts.goldens import goldens
from tools.schemas import FOLDER, RECORDS, schema_of
from tools.schemas.asyncapi import DOCUMENT, document_text, version
from tools.schemas.golden import FOLDER_NAME, Golden, golden_files, read_golden
from tools.schemas.json_schema import schema_text

ROOT = Path(__file__).parents[2]
TODAY = version()
BUDGET = f"{FOLDER_NAME}/{TODAY}/budget/replace.json"
CHECKS: dict[str, Callable[[Path], Problems]] = {
    "schemas": lambda folder: schema_problems(folder, RECORDS),
    "goldens": lambda folder: golden_problems(folder, TODAY, RECORDS),
    "headers": lambda folder: header_problems(folder, TODAY, RECORDS),
    "coverage": lambda folder: coverage_problems(folder, TODAY, RECORDS),
    "frozen": lambda folder: frozen_problems(folder, TODAY),
    "document": lambda folder: document_problems(folder, RECORDS),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of schemas/ to break."""
    return Path(shutil.copytree(FOLDER, tmp_path / "schemas"))


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_checked_in_agrees(check: str) -> None:
    assert [*CHECKS[check](FOLDER)] == []


def test_the_files_are_what_the_types_say() -> None:
    assert {name: (FOLDER / f"{name}.schema.json").read_bytes() for name in RECORDS} == {
        n: schema_text(n) for n in RECORDS
    }
    assert (FOLDER / DOCUMENT).read_bytes() == document_text()


def test_the_goldens_are_what_the_publishing_code_writes_today() -> None:
    there = {f"{path.parent.name}/{path.name}": path.read_bytes() for path in golden_files(FOLDER, TODAY)}
    assert there == goldens()


def edited(path: Path, change: Callable[[Any], object]) -> None:
    """Change a JSON or YAML file in place. What is JSON is YAML too."""
    table = yaml.safe_load(path.read_text())
    change(table)
    path.write_text(json.dumps(table))


def mean(schema: Any) -> Any:
    return schema["$defs"]["ReleaseRecord"]["properties"]


def kafka(document: Any, place: str, name: str) -> Any:
    return document[place][name]["bindings"]["kafka"]


BROKEN: list[tuple[str, str, Callable[[Any], object], str]] = [
    ("schemas", "release.schema.json", lambda s: mean(s).pop("raw"), "is not what ReleaseRecord says"),
    ("schemas", "budget.schema.json", lambda s: s["$defs"]["EpsilonDelta"].pop("description"), "has no description"),
    ("goldens", "release.schema.json", lambda s: mean(s).pop("raw"), "'raw' was unexpected"),
    ("goldens", "release.schema.json", lambda s: mean(s)["raw"].update(type="string"), "is not of type 'string'"),
    ("goldens", "release.schema.json", lambda s: mean(s)["status"]["enum"].pop(0), "is not one of"),
    ("goldens", "query.schema.json", lambda s: s["$defs"]["NoiseRecord"]["properties"].pop("scale"), "'scale' was"),
    ("goldens", "release.schema.json", lambda s: s["$defs"]["ReleaseRecord"]["required"].append("cause"), "'cause' is"),
    ("headers", BUDGET, lambda g: g["headers"].update(ce_source="hatcast/surat-speed"), "'hatcast/telemetry' was"),
    ("headers", BUDGET, lambda g: g.update(key="surat-speed"), "the key is 'surat-speed', not"),
    ("document", DOCUMENT, lambda d: d.pop("info"), "'info' is a required property"),
    ("document", DOCUMENT, lambda d: d["operations"]["send_means"].update(action="publish"), "publish"),
    ("document", DOCUMENT, lambda d: kafka(d, "channels", "means").update(partitions="8"), "'8' is not of type"),
    ("document", DOCUMENT, lambda d: kafka(d, "channels", "means").update(bindingVersion="0.4.0"), "bindingVersion"),
    ("document", DOCUMENT, lambda d: kafka(d, "servers", "kafka").update(replicas=3), "'replicas'"),
    ("document", DOCUMENT, lambda d: d["channels"]["means"]["messages"].update(x={"$ref": "#/no"}), "leads nowhere"),
    ("document", DOCUMENT, lambda d: d["components"]["messages"].pop("query"), "leads nowhere"),
    ("document", DOCUMENT, lambda d: example(d)["payload"].update(mean="fast"), "'fast' is not of type"),
    ("document", DOCUMENT, lambda d: example(d)["headers"].pop("ce_id"), "'ce_id' is a required property"),
]


def example(document: Any) -> Any:
    found = document["components"]["messages"]["release"]["examples"]
    return next(each for each in found if each["name"] == "replace_released")


@pytest.mark.parametrize(("check", "file", "change", "says"), BROKEN, ids=[each[3] for each in BROKEN])
def test_a_broken_file_is_found(
    check: str, file: str, change: Callable[[Any], object], says: str, folder: Path
) -> None:
    edited(folder / file, change)
    assert any(says in line for line in CHECKS[check](folder))


def mutant(field: str, type_: object | None) -> dict[str, Any]:
    """The records with a release that has lost a field, or has it with another type."""
    fields: list[Any] = []
    for each in msgspec.structs.fields(RECORDS["release"].type_):
        kind = type_ if each.name == field else each.type
        if kind is not None:
            fields.append((each.name, kind) if each.required else (each.name, kind, each.default))
    made = msgspec.defstruct("ReleaseRecord", fields, kw_only=True, omit_defaults=True)
    return {**RECORDS, "release": replace(RECORDS["release"], type_=made)}


@pytest.mark.parametrize(
    ("field", "type_", "says"),
    [
        ("seq", None, "writes other bytes"),
        ("interval95", None, "writes other bytes"),
        ("cell", None, "writes other bytes"),
        ("seq", str | None, "does not read it: Expected `str"),
        ("mean", int | None, "does not read it: Expected `int"),
        ("epsilon", str, "does not read it: Expected `str"),
    ],
)
def test_a_type_that_lost_a_field_or_changed_its_type_no_longer_reads_the_goldens_of_a_release(
    field: str, type_: object | None, says: str, folder: Path
) -> None:
    (folder / FOLDER_NAME / TODAY).rename(folder / FOLDER_NAME / "0.0.9")
    assert [*golden_problems(folder, "0.0.9", RECORDS)] == []
    assert any(says in line for line in golden_problems(folder, "0.0.9", mutant(field, type_)))


def test_a_type_with_a_new_field_that_has_a_default_reads_them(folder: Path) -> None:
    grown = msgspec.defstruct(
        "ReleaseRecord", [("target", str | None, None)], bases=(RECORDS["release"].type_,), kw_only=True, frozen=True
    )
    assert "target" in grown.__struct_fields__
    records = {**RECORDS, "release": replace(RECORDS["release"], type_=grown)}
    assert [*golden_problems(folder, TODAY, records)] == []


def test_a_record_that_is_gone_is_missed_by_the_goldens_of_a_release() -> None:
    left = {name: record for name, record in RECORDS.items() if name != "query"}
    assert any("no such record" in line for line in golden_problems(FOLDER, TODAY, left))


def test_a_field_a_word_or_a_record_without_a_golden_is_found(folder: Path) -> None:
    for path in golden_files(folder, TODAY):
        if path.stem.endswith("incomplete") or path.parent.name == "dead-letter" or path.stem == "replace_unit_user":
            path.unlink()
    assert [*coverage_problems(folder, TODAY, RECORDS)] == [
        f"no golden of dead-letter in {TODAY}",
        *(
            f"no golden in {TODAY} has {what}"
            for what in (
                "BudgetRecord.total",
                "BudgetRecord.total_limit",
                *(f"ContinualRecord.kind={kind}" for kind in ("blt", "kary", "toeplitz", "tree", "withhold_release")),
                *(f"DeadLetter.{field}" for field in ("offset", "partition", "reason")),
                *(f"DeadLetter.reason={reason}" for reason in ("bad_record", "bad_signature", "undecodable")),
                "DeadLetter.topic",
                "ReleaseRecord.status=incomplete",
            )
        ),
    ]


def test_goldens_of_a_release_are_frozen_and_may_neither_change_nor_go(folder: Path) -> None:
    assert [*frozen_problems(folder, "9.0.0")] == [
        "there are no goldens of 9.0.0: run python -m tests.contracts --write",
        f"the goldens of {TODAY} are not frozen: run python -m tests.contracts --freeze {TODAY}",
    ]
    shutil.copytree(folder / FOLDER_NAME / TODAY, folder / FOLDER_NAME / "9.0.0")
    earlier = json.loads((folder / FOLDER_NAME / FROZEN).read_bytes())
    (folder / FOLDER_NAME / FROZEN).write_text(json.dumps(earlier | {TODAY: digest(folder, TODAY)}))
    assert [*frozen_problems(folder, "9.0.0")] == []
    path = next(golden_files(folder, TODAY))
    path.write_bytes(path.read_bytes() + b"\n")
    assert [*frozen_problems(folder, "9.0.0")] == [f"the goldens of {TODAY} were changed after its release"]
    shutil.rmtree(folder / FOLDER_NAME / TODAY)
    assert [*frozen_problems(folder, "9.0.0")] == [f"the goldens of {TODAY} are gone"]


def released() -> Golden:
    return read_golden(FOLDER / FOLDER_NAME / TODAY / "release" / "replace_released.json")


MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"key": "another"}, "the key is 'another'"),
    ({"headers": {}}, "'ce_id' is a required property"),
    ({"headers": released().headers | {"ce_id": "1"}}, "ce_id is '1'"),
    ({"headers": released().headers | {"ce_time": "2022-01-02T04:35:03Z"}}, "not released_at"),
    ({"headers": released().headers | {"ce_source": "hatcast/else"}}, "'hatcast/telemetry' was expected"),
    ({"headers": released().headers | {"ce_type": "hatcast.query.v1"}}, "'hatcast.release.v1' was expected"),
    ({"headers": released().headers | {"ce_worker": "7"}}, "'ce_worker' was unexpected"),
]


@pytest.mark.parametrize(("change", "says"), MESSAGES)
def test_a_key_or_a_header_that_is_not_as_the_document_says_is_found(change: dict[str, Any], says: str) -> None:
    assert [*message_problems(RECORDS["release"], released(), "telemetry")] == []
    wrong = msgspec.structs.replace(released(), **change)
    assert any(says in line for line in message_problems(RECORDS["release"], wrong, "telemetry"))


def without(payload: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name not in fields}


def cases() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Records that no code of ours writes, and what the schema says of them."""

    def case(name: str, which: str) -> dict[str, Any]:
        return read_golden(FOLDER / FOLDER_NAME / TODAY / name / f"{which}.json").payload

    mean, hidden = case("release", "replace_released"), case("release", "add_remove_released")
    yield "release", without(mean, "mean"), "'mean' is a required property"
    yield "release", without(mean, "seq"), "'seq' is a required property"
    yield "release", hidden | {"seq": 1}, "False schema does not allow 1"
    yield "release", mean | {"status": "suppressed"}, "False schema does not allow 43.168"
    yield "release", mean | {"noise": {"kind": "laplace"}}, "'scale' is a required property"
    yield "release", mean | {"noise": {"kind": "laplace_ratio", "scale": 2.5}}, "False schema does not allow 2.5"
    yield "release", mean | {"mean": None}, "None is not of type 'number'"
    yield "release", mean | {"release_id": "87608b0d2ffffff"}, "does not match"
    yield "query", without(case("query", "replace_missing_days"), "reason"), "'reason' is a required property"
    yield "query", case("query", "add_remove_released") | {"user_days": 24}, "False schema does not allow 24"
    yield "budget", without(case("budget", "replace_successor"), "from"), "'from' is a required property"


@pytest.mark.parametrize(("name", "payload", "says"), cases())
def test_a_schema_refuses_what_does_not_go_with_status_or_relation(
    name: str, payload: dict[str, Any], says: str, folder: Path
) -> None:
    path = folder / FOLDER_NAME / TODAY / name / "wrong.json"
    path.write_bytes(Golden(key=None, headers={}, value=msgspec.Raw(msgspec.json.encode(payload))).text())
    assert any("wrong.json" in line and says in line for line in golden_problems(folder, TODAY, RECORDS))


def test_a_schema_lets_a_reader_of_today_read_a_record_of_tomorrow() -> None:
    for name in RECORDS:
        assert "additionalProperties" not in json.dumps(schema_of(name))


def test_a_wheel_has_the_schemas_where_the_documentation_says() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert f"`{built['force-include']['schemas']}` in the wheel" in (ROOT / "docs" / "consume.md").read_text()
    assert (ROOT / "schemas" / DOCUMENT).is_file()
