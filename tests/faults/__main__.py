"""`scripts/faults`: storms on real services of their own, one after the other, until the time is up."""

import json
import random
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Final

import click

from tests.faults.compaction import COMPACTING
from tests.faults.entries import rebuilt
from tests.faults.outage import ride_out
from tests.faults.recovered import recovered_by
from tests.faults.report import Report, Summary, has_place, keep
from tests.faults.run import KINDS, Plan, run
from tests.integration.harness import open_pipeline
from tests.services import ServiceAbsent, local_kafka, open_kafka, open_redis
from tests.services.redis_cluster import local_cluster

_FAULTS: Final = 40  # of one run


@click.command(epilog="Example:  scripts/faults --minutes 60 --keep")
@click.option(
    "--minutes", default=60.0, show_default=True, help="No run is begun after this, once each kind has had one."
)
@click.option("--seed", type=int, help="Of the first run; the next has the next.  [default: a random one]")
@click.option("--readings", default=1_000_000, show_default=True, help="In each run's log, at least.")
@click.option("--faults", default=_FAULTS, show_default=True, help="Dealt in each run, beside those at steps.")
@click.option("--kind", type=click.Choice(sorted(KINDS)), help="One kind of run only.  [default: in turns]")
@click.option("--outage", type=float, help="No storms: Kafka and Redis are away from a worker for so many minutes.")
@click.option("--entries", type=int, help="No storms: a ledger of so many entries is lost and rebuilt from the topics.")
@click.option("--workers", type=int, help="With --entries: so many processes recover at once what Redis never had.")
@click.option("--cluster", is_flag=True, help="On a Redis Cluster of three nodes.")
@click.option("--keep", "keeps", is_flag=True, help="Write the summary into docs/reliability.md.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON; the runs go to standard error.")
def command(**options: object) -> int:
    """Break workers, Redis, Kafka and the wires between them, and check every promise afterwards.

    A violation is printed with its seed, and the exit code is 1. A seed repeats the log and the order of the faults,
    not the moments at which they meet the workers.
    """
    if isinstance(options["outage"], float):
        return _outage(60 * options["outage"], int(str(options["readings"])))
    if isinstance(options["entries"], int):
        if isinstance(options["workers"], int):
            return _recovered(options["entries"], options["workers"])
        return _entries(options["entries"])
    kind = str(options["kind"]) if options["kind"] else None
    if options["keeps"] and not has_place(kind=kind):
        raise click.UsageError(f"docs/reliability.md has no place for a summary of '{kind}': leave out --keep")
    first = options["seed"] if isinstance(options["seed"], int) else random.randrange(10**6)
    reports = list(_runs(first, options))
    summary = Summary(reports)
    now = datetime.now(UTC)
    if options["keeps"]:
        keep(summary, f"{now:%Y-%m-%d}", kind=kind)
    click.echo(json.dumps(summary.as_json()) if options["as_json"] else summary.as_markdown(f"{now:%Y-%m-%d}"))
    for violation in summary.violations:
        _say(f"violation: {violation}")
    return 1 if summary.violations else 0


def _outage(seconds: float, readings: int) -> int:
    """Both outages; 1 where a promise was broken."""
    broken = 0
    with open_kafka() as kafka, open_redis() as redis, tempfile.TemporaryDirectory(prefix="hatcast-faults-") as folder:
        for away in ride_out(kafka, redis, Path(folder), seconds, readings):
            _say(
                f"{away.server} away for {seconds:.0f} s: {away.resident[0] >> 20} MB before,"
                f" {away.grown >> 20} MB more at most; not ready in {away.unready} of {len(away.resident) - 1} looks,"
                f" dialled {away.dialled} times, {away.lines} lines logged, {len(away.violations)} violations"
            )
            for violation in away.violations:
                _say(f"  {violation}")
            broken += len(away.violations)
    return 1 if broken else 0


def _entries(number: int) -> int:
    """A ledger lost and rebuilt: raises AssertionError if it is not the same. Always 0."""
    with open_kafka() as kafka, open_redis() as redis, tempfile.TemporaryDirectory(prefix="hatcast-faults-") as folder:
        with open_pipeline(kafka, redis, Path(folder), "entries") as pipeline:
            found = rebuilt(pipeline, number)
        _say(
            f"{found.entries:,} entries rebuilt as they were: {found.lost.wall_s:.1f} s ({found.lost.cpu_s:.1f} s CPU)"
            f" after FLUSHALL, {found.known.wall_s:.1f} s after a restart; to read the topics alone takes"
            f" {found.read.wall_s:.1f} s"
        )
    return 0


def _recovered(number: int, workers: int) -> int:
    """A ledger recovered by several processes at once. Always 0."""
    with open_kafka() as kafka, open_redis() as redis, tempfile.TemporaryDirectory(prefix="hatcast-faults-") as folder:
        with open_pipeline(kafka, redis, Path(folder), "recovered") as pipeline:
            found = recovered_by(pipeline, number, workers)
        _say(
            f"{found.entries:,} entries recovered by {found.workers} workers in {found.seconds:.0f} s, with at most"
            f" {found.peak_mb} MB each"
        )
    return 0


def _runs(first: int, options: dict[str, object]) -> "list[Report]":
    reports: list[Report] = []
    ends = time.monotonic() + 60 * float(str(options["minutes"]))
    kinds = cycle([KINDS[str(options["kind"])]] if options["kind"] else KINDS.values())
    opened = local_cluster() if options["cluster"] else open_redis()
    with (
        local_kafka(settings=COMPACTING) as kafka,
        opened as redis,
        tempfile.TemporaryDirectory(prefix="hatcast-faults-") as folder,
    ):
        _say(f"Kafka: {kafka.source}, Redis: {redis.source}, first seed {first}")
        for number, kind in enumerate(kinds):
            plan = Plan(kind, first + number, int(str(options["readings"])), int(str(options["faults"])))
            report = run(plan, kafka, redis, Path(folder) / str(number))
            reports.append(report)
            _say(
                f"seed {report.seed} {report.kind}: {report.readings:,} readings, {report.releases} releases,"
                f" {report.answers} answers, {sum(report.faults.values())} faults in {report.seconds:.0f} s,"
                f" {len(report.violations)} violations; so far {Summary(reports).wanted()}"
            )
            for violation in report.violations:
                _say(f"  {violation}")
            if time.monotonic() >= ends and (options["kind"] or len(reports) >= len(KINDS)):
                return reports
    return reports


def _say(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    try:
        sys.exit(command.main(prog_name="scripts/faults", standalone_mode=False) or 0)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    except ServiceAbsent as reason:
        _say(str(reason))
        sys.exit(1)
