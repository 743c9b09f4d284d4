"""Who and what is on the stage of a storm: wires, workers, those that must not join, and settings that are wrong."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults.faulty_worker import REACHED
from tests.faults.proxy import Proxy
from tests.integration.harness import WorkerProcess

# What a worker may say that ends by itself: what to do, and a supervisor does it by starting another.
NEW_KEY: Final = "another worker has generated a new one since: start again"
# Only where it has not started yet: its first checks need both servers, and a wire may be cut between two of them.
NOT_THERE: Final = ("hatcast: Kafka at ", "hatcast: the connection to Kafka at ", "hatcast: Redis at ")


@dataclass
class Wire:
    """One way of some workers to both servers."""

    kafka: Proxy
    redis: Proxy
    config: Path


@dataclass
class Worker:
    """A worker of the storm.

    step, action   what it was started to meet, if anything; `reached` once it has
    paused         by us, or by itself
    ended          by us
    """

    process: WorkerProcess
    step: str = ""
    action: str = ""
    reached: bool = False
    paused: bool = False
    ended: bool = False

    @property
    def running(self) -> bool:
        return self.process.code is None

    @property
    def at_work(self) -> bool:
        """It has read a partition's state, and folds."""
        return "partition started" in self.process.logged()

    def looked(self) -> bool:
        """True the first time that it is seen to have met its fault."""
        if self.reached or not self.step or REACHED not in self.process.logged():
            return False
        self.reached = True
        return True


@dataclass(frozen=True)
class WrongSetting:
    """A topic's setting that breaks a promise, as workers name it; and what it was."""

    topic: str
    setting: str
    wrong: str
    right: str

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.setting} is {self.wrong}, expected "


@dataclass(frozen=True)
class Intruder:
    """A worker that contradicts the others: it has to refuse to start, and to say why."""

    process: WorkerProcess
    says: str

    def is_refused(self, wrong: Iterable[WrongSetting]) -> bool:
        """Whether it has ended so; or for a topic that was wrong when it came; or could not reach its servers."""
        return is_refused(self.process.code, self.process.logged(), self.says, *map(str, wrong))


def is_refused(code: int | None, log: str, *says: str) -> bool:
    """Whether a worker has ended by itself before it joined: with such a text in its one line, or without servers."""
    lines = [line for line in log.splitlines() if line.startswith("hatcast: ")]
    is_said = any(text in line for text in says for line in lines) or any(line.startswith(NOT_THERE) for line in lines)
    return code == 1 and "worker started" not in log and is_said
