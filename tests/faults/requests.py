"""An operator requests speed limits of queries while everything breaks: what was accepted is in every answer."""

import subprocess
from contextlib import suppress
from typing import Final

from tests.faults.generate import DATES
from tests.faults.stage import Stage

LIMITS: Final = (30.0, 40.0)


def request(stage: Stage) -> None:
    """`hatcast query` with one of two limits for a day: it may be too late, or the other one was there before."""
    taking = [query.name for query in stage.pipeline.settings.policy.queries if query.on_request]
    if not taking:
        return
    query, date, limit = stage.random.choice(taking), stage.random.choice(DATES), stage.random.choice(LIMITS)
    stage.kafka.resume()
    with suppress(subprocess.TimeoutExpired):
        done = stage.pipeline.hatcast("query", query, "--date", date, "--speed-limit", limit)
        if done.code == 0:
            stage.accepted.append((query, date, limit))
        stage.tally["limit requested" if done.code == 0 else "request rejected"] += 1
