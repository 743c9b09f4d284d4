"""`python -m tools.metrics_page [--check]`: write docs/metrics.md from the declarations, or check it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hatcast.agents.monitoring.declarations import METRICS, Metric, Process

PAGE: Final = Path(__file__).parents[1] / "docs" / "metrics.md"
_TITLES: Final = {
    None: "Every process",
    Process.WORKER: "Worker",
    Process.BRIDGE: "Bridges",
    Process.DISPLAY: "The display",
}
_OF_A_WORKER: Final = """\
Each has the label `policy` too: the name of the one policy that the worker runs. So several policies can share a
Prometheus: aggregate `by (policy)`."""
_HEAD: Final = """# Metrics

*For operators.*

<!-- written by python -m tools.metrics_page from agents/monitoring/declarations.py -->

Each process serves these at `/metrics`, beside `/livez` and `/readyz`, on an address of its own: `worker.listen` of
[configuration.md](configuration.md#worker), `--metrics-listen` of bridges and of the display. They are for operators,
inside the trust boundary, and yet nothing here is of one vehicle or one cell, and none is a mean.

Names are in base units; a counter starts at 0 with its process, so look at `rate()` and `increase()`. A gauge is there
once it is known. Beside these are the `process_*` and `python_*` of the Prometheus client. Alerts on them are in
`ops/prometheus/alerts.yaml`, what to do about each in [runbook.md](runbook.md).
"""


def render_page() -> str:
    """Return the page's text."""
    return _HEAD + "".join(_sections())


def _sections() -> Iterator[str]:
    for process, title in _TITLES.items():
        of_process = [metric for metric in METRICS if _owner(metric) == process]
        remark = f"\n{_OF_A_WORKER}\n" if process is Process.WORKER else ""
        yield f"\n## {title}\n{remark}\n| name | kind | labels | meaning |\n|---|---|---|---|\n"
        yield from (_row(metric) for metric in of_process)


def _owner(metric: Metric[Any]) -> Process | None:
    return metric.processes[0] if len(metric.processes) == 1 else None


def _row(metric: Metric[Any]) -> str:
    labels = "; ".join(
        f"`{label.name}`" + (f": {', '.join(f'`{value}`' for value in label.values)}" if label.values else "")
        for label in metric.labels
    )
    kind = metric.kind.__name__.lower()
    if metric.buckets:
        kind += f", {metric.buckets[0]:g} to {metric.buckets[-1]:g} s"
    return f"| `{metric.name}` | {kind} | {labels} | {metric.text} |\n"


def main() -> None:
    """Write the page; with `--check` exit 1 if it differs."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(render_page())
    elif not PAGE.exists() or PAGE.read_text() != render_page():
        sys.exit("docs/metrics.md and agents/monitoring/declarations.py differ: run python -m tools.metrics_page")


if __name__ == "__main__":
    main()
