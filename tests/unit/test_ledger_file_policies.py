"""Several policies in one ledger file: which follows which, and what cannot follow."""

from pathlib import Path

import pytest

from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import Policy
from tests.batching import CONFIG, batch, recording_of, releases
from tests.folding import DAY, NOON
from tests.unit.test_ledger_file import AT, DATE, a_policy, drawn

OLD, TOMORROW = a_policy(name="old"), "2022-01-03"


def following(date: str = TOMORROW, **changes: str) -> Policy:
    return a_policy(**{"name": "new", "replaces": "old", "from": date, **changes})


NEW = following()
REFUSED = {
    "unknown": (
        [],
        following(replaces="nobody"),
        "policy 'nobody' was never run on this file: correct policy.replaces",
    ),
    "begun": (
        [],
        following(DATE),
        f"policy.from {DATE} has begun: 'old' has already released {DATE}; use a later date",
    ),
    "zone": ([], following(timezone="Asia/Kolkata"), "have the policy.timezone 'UTC', and all must have the same"),
    "before its own": (
        [NEW],
        following(name="late", replaces="new"),
        f"'new' itself begins on {TOMORROW}: use a later",
    ),
    "rival": ([NEW], following(name="rival"), f"policy 'old' is replaced by 'new' from {TOMORROW} on: set policy.repl"),
    "moved": ([NEW], following("2022-01-04"), "was started with another policy.from: a policy does not change"),
}


@pytest.mark.parametrize(("before", "policy", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_policy_that_cannot_follow_is_refused_and_not_kept(
    tmp_path: Path, before: list[Policy], policy: Policy, reason: str
) -> None:
    path = tmp_path / "ledger"
    with open_ledger(path, OLD) as ledger:
        ledger.commit([drawn("a", policy=OLD)], AT)
    for each in before:
        with open_ledger(path, each):
            pass
    for _ in range(2):
        with pytest.raises(HatcastError) as refused, open_ledger(path, policy):
            pass
        assert reason in str(refused.value)
        assert "\n" not in str(refused.value)


def test_batch_leaves_the_days_of_a_successor_to_it(tmp_path: Path) -> None:
    today = recording_of(tmp_path / "today.jsonl", NOON)
    both = recording_of(tmp_path / "both.jsonl", NOON, NOON + DAY)
    config = tmp_path / "hatcast.toml"

    def released(name: str, succession: str, recording: Path) -> list[tuple[str, str]]:
        config.write_text(CONFIG.replace('name = "test"', f'name = "{name}"\n{succession}'))
        done = batch(recording, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger", "--json")
        return [(each["release_id"].partition("/")[0], each["date"]) for each in releases(done)]

    assert released("old", "", today) == [("old", DATE)]
    assert released("new", f'replaces = "old"\nfrom = "{TOMORROW}"', both) == [("new", TOMORROW)]
    assert released("old", "", both) == [("old", DATE)]
