"""Start benchmark processes, and read their CPU time and memory from the system."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int | str = "self") -> float:
    """Return a process's peak resident memory, in MB of 10^6 bytes. Children inherit ru_maxrss, so it is not used."""
    return _status(pid, "VmHWM") / 1000 * 1.024


def resident_mb(pid: int | str = "self") -> float:
    """Return a process's resident memory, in MB."""
    return _status(pid, "VmRSS") / 1000 * 1.024


def _status(pid: int | str, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise ProcessLookupError(f"process {pid} has ended")


def cpu_s(pid: int | str = "self") -> float:
    """Return the CPU seconds, user and system, of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def start(module: str, *arguments: str, env: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Start `python -m MODULE ARGUMENTS` from the repository; its standard output goes to our standard error.

    env   variables beside ours
    """
    command, variables = [sys.executable, "-m", module, *arguments], {**os.environ, **(env or {})}
    return subprocess.Popen(command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=2)


def run(module: str, *arguments: str, timeout: float = 900.0) -> None:
    """Run `python -m MODULE ARGUMENTS` to its end. Raises RuntimeError if it fails."""
    run_command([sys.executable, "-m", module, *arguments], module, timeout)


def run_command(command: Sequence[str], name: str, timeout: float = 900.0) -> None:
    """Run a command from the repository to its end. Raises RuntimeError if it fails."""
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=2)
    try:
        if process.wait(timeout) != 0:
            raise RuntimeError(f"{name} ended with exit code {process.returncode}")
    finally:
        end([process])


def end(processes: Sequence["subprocess.Popen[bytes]"], seconds: float = 30.0) -> None:
    """Terminate the processes; kill those that do not end in time."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
