"""What docs/queries.md and examples/papers.toml say of queries is so."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from hatcast.stream.budget import day_loss
from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.policy.query import QueryTable
from hatcast.stream.records import QUERY, QueryRecord

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEXT = (DOCS / "queries.md").read_text()
EXAMPLE = (ROOT / "examples" / "papers.toml").read_text()
# Fields that say what they say in the record of a mean, or in their name.
SAME_AS_MEANS = {
    *("release_id", "policy_id", "seq", "cell", "query", "kind", "unit", "noise", "covers", "relation", "released_at"),
}


def block(kind: str) -> str:
    found = re.search(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def policy_of(text: str) -> Policy:
    return read_policy(tomllib.loads(text)["policy"], ESTIMATOR_KEYS, lambda _: "")


def figures(row: str) -> list[str]:
    """The cells of a row of a table, by how the row begins."""
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| {row} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_queries_of_the_docs_are_those_that_the_example_has_in_comments() -> None:
    documented = policy_of(EXAMPLE + block("toml"))
    commented = EXAMPLE[EXAMPLE.index("# [[policy.query]]") :].replace("\n# ", "\n").removeprefix("# ")
    assert policy_of(EXAMPLE.partition("# [[policy.query]]")[0] + commented) == documented
    assert len(documented.queries) == 2


def test_what_the_table_says_that_they_cost_is_what_is_charged() -> None:
    loss = day_loss(policy_of(EXAMPLE + block("toml")))
    wanted = {
        "hourly means": (loss.epsilon, loss.hats),
        "`month-speed`": (loss.queries["month-speed"].epsilon, loss.queries["month-speed"].amount),
        "`over-50`": (loss.queries["over-50"].epsilon, loss.queries["over-50"].amount),
        "together": (loss.per_hat, loss.bound),
    }
    for row, (place, day) in wanted.items():
        found = [float(cell.rpartition("=")[2]) for cell in figures(row)]
        for shown, nano in zip(found, (place, day, 31 * day), strict=True):
            assert abs(shown - nano / 1e9) <= 0.0005, row


def test_the_record_is_one_of_the_contract_and_all_its_fields_are_explained() -> None:
    record = QUERY.decode(block("json"))
    wire: dict[str, Any] = msgspec.json.decode(block("json"))
    assert wire.keys() <= {field.encode_name for field in msgspec.structs.fields(QueryRecord)}
    policy = policy_of(EXAMPLE + block("toml"))
    assert record.policy_id == policy.policy_id
    assert record.release_id == f"{policy.name}/{record.date}T{record.slot}/{record.cell}/{record.query}"
    assert record.epsilon_user_day == day_loss(policy).queries[record.query].amount / 1e9
    explained = TEXT[TEXT.index("| field | |") :].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", explained)) >= wire.keys() - SAME_AS_MEANS


def test_every_key_of_a_query_is_in_the_configurations_table() -> None:
    section = (DOCS / "configuration.md").read_text().partition("### [[policy.query]]")[2].partition("\n##")[0]
    keys = {field.encode_name for field in msgspec.structs.fields(QueryTable)}
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == keys
