"""What a page of `/metrics` shows, beside what is declared."""

from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from hatcast.agents.monitoring.declarations import METRICS, POLICY_INFO, Process

LIBRARY: Final = ("process_", "python_")  # of the Prometheus client itself


def families(page: str) -> set[str]:
    """The names with at least one figure, as they are declared; without those of the client library."""
    return {
        family.name + ("_total" if family.type == "counter" else "")
        for family in text_string_to_metric_families(page)
        if family.samples and not family.name.startswith(LIBRARY)
    }


def figures(page: str, name: str) -> dict[tuple[str, ...], float]:
    """Values of the labels, in the order of the page -> figure, of the sample `name`; without a worker's `policy`."""
    return {
        tuple(value for label, value in sample.labels.items() if label != "policy" or name == POLICY_INFO.name): (
            sample.value
        )
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    }


def undeclared(page: str, process: Process) -> set[str]:
    """What a process shows and has not declared."""
    return families(page) - _of(process)


def unset(page: str, process: Process) -> set[str]:
    """What a process has declared and does not show: after a real run there is none."""
    return _of(process) - families(page)


def _of(process: Process) -> set[str]:
    return {metric.name for metric in METRICS if process in metric.processes}
