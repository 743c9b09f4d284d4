"""A survey as rows for a file. Not private, but for the cells of a private selection."""

from typing import Any

from hatcast.lab.survey.run import Selection, Survey


def rows_of_resolutions(survey_figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each resolution, with the figures of `survey_json`; those of a distribution are flat."""
    return [
        {"resolution": int(resolution), **_flat(figures), "private": False, "settings": survey_figures["settings"]}
        for resolution, figures in survey_figures["resolutions"].items()
    ]


def _flat(figures: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, dict) and "histogram" in value:
            row |= {f"{name}_{part}": each for part, each in value.items()}
        else:
            row[name] = value
    return row


def rows_of_cells(survey: Survey, resolution: int) -> list[dict[str, Any]]:
    """Return a row for each cell with a reading, of the policy's resolution."""
    busy = set(survey.busy)
    return [
        {"cell": f"{cell:x}", "resolution": resolution, "busy": cell in busy, "private": False} for cell in survey.cells
    ]


def rows_of_selection(chosen: Selection, resolution: int, epsilon: float) -> list[dict[str, Any]]:
    """Return a row for each cell of a private selection, all of which may be published."""
    return [
        {
            "cell": f"{cell:x}",
            "resolution": resolution,
            "private": True,
            "epsilon_of_each_day": epsilon,
            "noise_scale": chosen.scale,
        }
        for cell in chosen.selected
    ]
