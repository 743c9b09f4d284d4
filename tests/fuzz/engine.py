"""The search: one process per target, forked from one that has the product instrumented for coverage."""

import mmap
import multiprocessing
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha1
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final, NoReturn

from tests.fuzz.target import Target, check_limits

_HANG_S: Final = 120  # wall time: CPU_MAX_S finds all but an input that waits
_PEAK_MAX_MIB: Final = 2_048
_TOLD: Final = struct.Struct("<QdQ")
_FORK: Final = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a target is searched: whichever ends first. seconds: wall time, 0 for no bound."""

    seconds: float
    runs: int
    seed: int


@dataclass(frozen=True, slots=True)
class Searched:
    """What became of one target.

    slowest   processor time (s) of one input
    peak      MiB of the process
    finding   a file with the input that broke the property; None: there is none
    log       the engine's output
    """

    name: str
    inputs: int
    slowest: float
    peak: int
    finding: Path | None
    log: Path


class Search:
    """The search of one target, in a process of its own.

    folder   of corpus, log and findings: the corpus is where the next search begins
    """

    def __init__(self, target: Target, bounds: Bounds, folder: Path) -> None:
        self.target = target
        self._folder = folder / target.name
        self._corpus, self._findings = self._folder / "corpus", self._folder / "findings"
        for each in (self._corpus, self._findings):
            each.mkdir(parents=True, exist_ok=True)
        for seed in (each[: target.max_bytes] for each in target.seeds()):
            (self._corpus / sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
        self._log = self._folder / "log"
        self._told = mmap.mmap(-1, _TOLD.size)  # shared with the process
        self._before = set(self._findings.iterdir())
        sys.stdout.flush()
        self.process = _FORK.Process(target=self._search, args=(bounds,))
        self.process.start()

    def _search(self, bounds: Bounds) -> NoReturn:
        import atheris

        from tests.fuzz.mutations import mutate

        with self._log.open("wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        inputs, slowest = 0, 0.0

        def one(data: bytes) -> None:
            nonlocal inputs, slowest
            try:
                took, peak = check_limits(self.target.run, data)
            except BaseException:  # libFuzzer does not write a seed that breaks the property
                (self._findings / f"crash-{sha1(data, usedforsecurity=False).hexdigest()}").write_bytes(data)
                raise
            inputs += 1
            slowest = max(slowest, took)
            _TOLD.pack_into(self._told, 0, inputs, slowest, peak)

        options = {
            "max_len": self.target.max_bytes,
            "max_total_time": int(bounds.seconds),
            "runs": bounds.runs,
            "seed": bounds.seed,
            "timeout": _HANG_S,
            "rss_limit_mb": _PEAK_MAX_MIB,
            "artifact_prefix": f"{self._findings}/",
            "use_value_profile": 1,
        }
        atheris.Setup(
            [sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), str(self._corpus)],
            one,
            custom_mutator=mutate,
        )
        atheris.Fuzz()
        raise AssertionError("atheris ends the process")

    def result(self) -> Searched:
        """Return what became of the target, after its process has ended."""
        inputs, slowest, peak = _TOLD.unpack_from(self._told)
        new = sorted(set(self._findings.iterdir()) - self._before)
        finding = new[0] if new else None
        if finding is None and self.process.exitcode != 0:
            finding = self._log  # the process died without naming its input
        return Searched(self.target.name, inputs, slowest, peak >> 10, finding, self._log)


def search(targets: Sequence[Target], bounds: Bounds, folder: Path, jobs: int) -> Iterator[Searched]:
    """Search all targets, `jobs` at a time; yield the results as they come.

    bounds   their seconds are those of all targets together, divided by their shares
    """
    shares, left = sum(target.share for target in targets), list(targets)[::-1]
    running: dict[int, Search] = {}
    while left or running:
        while left and len(running) < jobs:
            target = left.pop()
            seconds = bounds.seconds * jobs * target.share / shares
            begun = Search(target, replace(bounds, seconds=seconds and max(1.0, seconds)), folder)
            running[begun.process.sentinel] = begun
        for sentinel in wait([*running]):
            ended = running.pop(int(str(sentinel)))
            ended.process.join()
            yield ended.result()
