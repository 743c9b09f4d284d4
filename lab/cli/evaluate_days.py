"""`hatcast evaluate --daily-limit`: compare designs over whole days."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from hatcast.agents.cli.progress import progress_bars
from hatcast.agents.cli.recordings import checked_format
from hatcast.lab.evaluate.contenders import Contender
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.readings.formats import FormatChoice

_RUNS: Final = 4
_MOST_RUNS: Final = 1_000  # all runs of a design are in memory at once
_CAP: Final = 10
_MIN_USERS: Final = 3
_SHARE: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOptions:
    """Parsed options. None: the default. limits: total epsilons of a bus and day."""

    paths: Sequence[Path]
    feed_format: FormatChoice
    config: Path | None
    limits: Sequence[float]
    estimators: str | None
    share: float | None
    objective: Objective | None
    cap: int | None
    min_users: int | None
    runs: int | None
    as_json: bool
    output: Path | None

    def of_policy(self, policy: Policy) -> tuple[int, int]:
        """Return K and min_users: as given, or those of the policy in --config, or the defaults."""
        cap, min_users = (_CAP, _MIN_USERS) if self.config is None else (policy.max_hats_per_day, policy.min_users)
        return self.cap or cap, self.min_users or min_users


def evaluate_days(options: DayOptions) -> None:
    """Print a table or JSON, or write a file. Raises HatcastError, UsageError."""
    from hatcast.lab.days import policy_of_recordings
    from hatcast.lab.evaluate import days as run
    from hatcast.lab.evaluate.days_replay import TrackerDesign
    from hatcast.stream.mechanisms.system import SystemNoise

    runs = options.runs or _RUNS
    if runs > _MOST_RUNS:
        raise click.UsageError(f"--daily-limit takes up to {_MOST_RUNS:,} runs")
    designs = run.parse_designs(options.estimators or ",".join(run.DEFAULT))
    policy = policy_of_recordings(options.config, options.feed_format.name)
    cap, min_users = options.of_policy(policy)
    tracker = TrackerDesign(
        _SHARE if options.share is None else options.share,
        Objective.CELLS if options.objective is None else options.objective,
    )
    click.echo("reads raw data; nothing that it prints is private", err=True)
    feed = checked_format(options.feed_format, policy, options.paths)
    job = run.Job(options.paths, feed, policy, options.limits, designs, tracker, cap, min_users, runs)
    with progress_bars() as add_bar:
        comparison = run.compare_days(
            job, SystemNoise(), add_bar("reading", None), add_bar("replaying days", len(designs) * len(options.limits))
        )
    dates = f"{comparison.dates[0]} to {comparison.dates[-1]}" if len(comparison.dates) > 1 else comparison.dates[0]
    title = f"{dates}: {comparison.hats:,} HATs with {min_users} users or more"
    settings: dict[str, Any] = {
        "sources": [path.name for path in options.paths],
        "dates": comparison.dates,
        "hats": comparison.hats,
        "min_users": min_users,
        "upper_bound": policy.upper_bound / 1000,
        **({} if policy.value_name is None else {"unit": policy.released_value.unit}),
        "daily_limits": list(options.limits),
        "runs": runs,
        "share": tracker.share,
        "objective": tracker.objective.value,
        "cap": cap,
        "estimators": [each.name if isinstance(each, Contender) else each for each in designs],
    }
    run.report_of(comparison, title, settings).write(as_json=options.as_json, output=options.output)
