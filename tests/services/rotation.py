"""Which files of tests a run of all leaves out, so that it takes less time.    [docs/decisions/0009]

Every file runs each time, unless a group below has it. Such a group takes long and looks at one part of the product: a
sixth of it runs, another one for each commit, so six commits in a row run all of it. What has changed since the base
commit runs whatever the turn. Of a long test with many cases the cases take turns, so some of them run each time.
A run that names files, folders, `-k` or `-m` leaves nothing out; nor does `scripts/test --all`.
"""

import os
import subprocess
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.services.data import ROOT

SHARES: Final = 6
_BASE: Final = "HATCAST_TEST_BASE"


def _tests(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/test_{name}.py" for name in names)


_LAWS: Final = "tests/laws"
_SELECTED: Final = "test_neighbours_select_and_publish_within_their_shares_of_epsilon"
_STEPS: Final = "tests/faults/test_tracker_steps.py"
_SEEN: Final = "test_the_checker_sees_a_mutant_of_the_tracker_after_a_kill_in_the_middle_of_a_day"
_FUZZED: Final = "test_no_target_breaks_its_property_on_its_seeds_and_some_inputs_made_of_them"
_GOES_BACK: Final = (
    "test_a_living_redis_that_goes_back_publishes_no_second_value"  # each time on the demo's Redis: .ci/run
)
_KILLED: Final = "test_after_a_kill_9_in_the_middle_the_contributions_equal_batch_hat_by_hat"

# Name of a group -> its files, by pattern. What they find is no promise of the product, or is found by a shorter test
# beside them, which runs each time.
GROUPS: Final = {
    "laboratory": (
        *_tests("unit", "api_plan*", "audit_command", "cluster_command", "evaluate*", "plan*"),
        *_tests("unit", "survey_command", "survey_figures"),
    ),
    "chart and compose": (*_tests("unit", "chart*", "compose"), *_tests("integration", "chart_rights")),
    "documentation that is executed": _tests(
        "unit", "docs_batch", "docs_continual", "docs_python", "docs_site", "docs_tutorial"
    ),
    "long statistics": (
        *_tests("statistics", "alarms", "capped_ratio", "continual_choice", "continual_trees", "intervals"),
        *_tests("statistics", "kmeans", "running_means", "smoothed_releases", "tracker_accuracy", "trends"),
    ),
    "the checker of storms": _tests("faults", "check*", "contradictions", "proxy"),
    "demo": (*_tests("integration", "demo_queries"), *_tests("browser", "hybrid_demo_map")),
    "page of the map": (
        *_tests("browser", "answers_map", "budget_map", "clusters_map", "demo_map", "empty_map"),
        *_tests("browser", "estimates_map", "other_pages", "phone_map", "share_map", "sizes_map", "stale_map"),
        *_tests("browser", "surroundings_map", "uncertainty_map", "value_map"),
    ),
    "feeds, bridges and devices": (
        *_tests("integration", "bridge_*", "codecs", "derived_speeds", "device*", "hybrid_ticks"),
        *_tests("integration", "mixed_sizes", "record_and_replay", "report_pipeline", "signed_reports"),
    ),
    "readers of outputs": (
        *_tests("integration", "api", "consume*", "dump", "export", "garbage", "metrics"),
        *_tests("integration", "reading_map"),
    ),
    "operation": (
        *_tests("integration", "connections", "doctor*", "drain", "fresh_kafka", "health", "own_redis"),
        *_tests("integration", "slow_services", "topic_watch", "topics", "two_cities", "wheel", "worker_refusals"),
        *_tests("faults", "outage"),
    ),
    "privileges": _tests("integration", "access"),
    "command line": _tests("unit", "cli_output", "columns_command", "output_files", "single_value_commands"),
    "input of workers": _tests("integration", "ingest", "private_list", "registry", "time_zone_data", "user_key"),
    "estimates": _tests("integration", "estimates", "running_snapshot"),
    "queries, values and running sums": _tests(
        "integration", "continual", "queries_apart", "requested_limits", "single_value", "tracker", "values"
    ),
    "recoveries in pairs": (
        *_tests("integration", "compacted", "done_again", "gap", "hybrid_rollback", "lost_outputs", "queries_lost"),
        *_tests("integration", "recovered_beside_others", "republish", "sealed_rollbacks", "succession"),
        *_tests("integration", "topic_made_again"),
    ),
    "Redis in parts": _tests("integration", "full_redis", "redis_cluster", "slot_migration"),
    "record batches": _tests("integration", "record_batches*", "publisher", "services"),
    "live clusterings": _tests("laws", "device_clusterings"),
    "audit and survey": (*_tests("laws", "audit*", "survey"), *_tests("statistics", "survey_selection")),
    "recordings whole": (
        *_tests("unit", "batch_queries_capmetro", "batch_tracker", "derived_capmetro", "feed_capmetro"),
        *_tests("unit", "feed_itms", "first_file", "fold_garbage", "goldens", "replay_plan"),
    ),
    "package and alerts": _tests("unit", "api_package", "extras", "faust_pins", "ops", "supply_chain"),
}

# Tests, as `file::name`, and whole files, whose cases take turns; their files run each time. They are long and have
# nothing in common, no set-up and nothing computed, so a sixth of them lasts as long at each commit.
CASES: Final = (
    *(f"tests/{file}" for file in _tests("faults", "mutants", "storm_kinds")),
    *(f"tests/{file}" for file in _tests("integration", "clock", "cluster_live", "demo", "demo_hybrid", "display")),
    *(f"tests/{file}" for file in _tests("integration", "feed", "rebalances")),
    *(f"tests/{file}" for file in _tests("statistics", "prior_scale")),
    f"{_LAWS}/test_scripts.py::test_a_script_writes_all_or_nothing_whatever_is_wrong_with_a_key",
    f"{_LAWS}/test_continual.py::test_no_user_moves_requests_by_more_than_the_claimed_distances",
    f"{_LAWS}/test_estimators.py::test_a_million_users_take_under_400_bytes_each",
    f"{_LAWS}/test_private_selections.py::{_SELECTED}",
    f"{_LAWS}/test_withhold_release.py::test_the_parts_of_epsilon_are_together_at_most_epsilon",
    f"tests/faults/test_rollbacks.py::{_GOES_BACK}",
    f"tests/fuzz/test_fuzz.py::{_FUZZED}",
    f"{_STEPS}::{_SEEN}",
    "tests/browser/test_map.py::test_axe_finds_nothing_serious",
    f"tests/integration/test_pipeline.py::{_KILLED}",
)


@cache
def files_of(group: str) -> list[str]:
    """The files of a group, in the order of their names."""
    found = {path for pattern in GROUPS[group] for path in (ROOT / "tests").glob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in found)


def left_out(changed: Collection[str] | None, number: int) -> dict[str, list[str]]:
    """Group -> its files that the commit of this number leaves out; `changed` is None if nobody knows."""
    if changed is None:
        return {}
    # Numbered through all groups, so that the shares are equal.
    every = [(group, file) for group in GROUPS for file in files_of(group)]
    out = {
        group: [f for at, (of, f) in enumerate(every) if of == group and (at - number) % SHARES and f not in changed]
        for group in GROUPS
    }
    return {name: files for name, files in out.items() if files}


def in_turns(changed: Collection[str] | None) -> list[str]:
    """Return the tests, as `file::name`, of which a share of the cases runs."""
    if changed is None:
        return []
    return [case for case in CASES if case.partition("::")[0] not in changed]


def cases_left_out(cases: Collection[str], tests: Collection[str], number: int) -> set[str]:
    """Return the cases that the commit of this number leaves out, of these tests and files; all by their ids."""
    own = [case for case in cases if case.partition("[")[0] in tests or case.partition("::")[0] in tests]
    return {case for at, case in enumerate(sorted(own)) if (at - number) % SHARES}


def changed_since(base: str | None) -> set[str] | None:
    """Every file that differs from the base commit, also one that is in no commit yet; None if git does not know."""
    if base is None or _git("rev-parse", "--is-shallow-repository") != "false":
        return None
    differing, untracked = (
        _git("diff", "--name-only", "-z", base),
        _git("ls-files", "--others", "--exclude-standard", "-z"),
    )
    return None if differing is None or untracked is None else {*f"{differing}\0{untracked}".split("\0")} - {""}


def base_commit() -> str | None:
    """The commit that the environment names, else where this branch left main; on main itself the commit before."""
    if given := os.environ.get(_BASE):
        return given
    here = _git("rev-parse", "HEAD")
    for main in ("origin/main", "main"):
        begun = _git("merge-base", "HEAD", main)
        if begun not in (None, here):
            return begun
    return _git("rev-parse", "--verify", "HEAD~1")


def commit_number() -> int:
    """The number of commits up to here along main: the next commit has the next number, and so the next share."""
    return int(_git("rev-list", "--count", "--first-parent", "HEAD") or 0)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


# What pytest is told. The processes of a run do as the one that starts them has decided: it hands them its options.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="leave no file of tests out: tests/services/rotation.py")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "left_out"):
        return
    named = (
        config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.option.keyword or config.option.markexpr
    )
    config.option.base = None if named or config.option.all else base_commit()
    changed = None if config.option.base is None else changed_since(config.option.base)
    config.option.turn = commit_number()
    config.option.left_out, config.option.in_turns = left_out(changed, config.option.turn), in_turns(changed)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    left: dict[str, list[str]] = config.option.left_out
    if not any(left.values()) or not collection_path.is_relative_to(ROOT):
        return None
    file = collection_path.relative_to(ROOT).as_posix()
    return True if any(file in files for files in left.values()) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    out = cases_left_out([item.nodeid for item in items], config.option.in_turns, config.option.turn)
    if out:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
        items[:] = [item for item in items if item.nodeid not in out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left: dict[str, list[str]] = config.option.left_out
    if not left:
        return
    base = config.option.base[:12]
    terminalreporter.write_line(
        f"left out, as it is not their turn and they are as at {base} (scripts/test --all runs all):"
    )
    for name, files in left.items():
        short = ", ".join(Path(file).stem.removeprefix("test_") for file in files)
        terminalreporter.write_line(f"  {name}: {len(files)} of {len(files_of(name))} files: {short}")
    names = ", ".join(test.rpartition("test_")[2].removesuffix(".py") for test in config.option.in_turns)
    terminalreporter.write_line(f"  cases: five of six of {names}")
