"""Results of `hatcast evaluate` as rows for a file, with the digits of its JSON; each row has the settings."""

from collections.abc import Iterator, Mapping
from typing import Any

Rows = list[dict[str, Any]]
Json = Mapping[str, Any]


def rows_of_errors(mae: Json, suppressed: Json, settings: Json) -> Rows:
    """Return a row for each estimator and epsilon."""
    return [
        {
            "estimator": name,
            "epsilon": float(epsilon),
            "mae": error,
            "suppressed": suppressed.get(name, {}).get(epsilon),
            "settings": settings,
        }
        for name, row in mae.items()
        for epsilon, error in row.items()
    ]


def rows_of_worst_cases(figures: Json, settings: Json) -> Rows:
    """Return the rows of three tables: worst cases, full arrays, and the steps of array lengths."""
    rows: Rows = [
        {"table": "worst_case", "estimator": name, "epsilon": float(epsilon), **each}
        for name, row in figures["worst_case"].items()
        for epsilon, each in row.items()
    ]
    rows += [
        {"table": "full_arrays", "epsilon": float(epsilon), **each} for epsilon, each in figures["full_arrays"].items()
    ]
    rows += [
        {"table": "array_lengths", "rule": rule, "epsilon": epsilon, "array_length": length}
        for rule, steps in figures["array_lengths"].items()
        for epsilon, length in steps
    ]
    return [row | {"settings": settings} for row in rows]


def rows_of_hybrid(figures: Json, settings: Json) -> Rows:
    """Return the rows of three tables: improvement along each axis, heatmap and amplification."""
    return [row | {"settings": settings} for row in _hybrid(figures)]


def _hybrid(figures: Json) -> Iterator[dict[str, Any]]:
    for axis, by_estimator in figures["improvement"].items():
        for name, by_sigma in by_estimator.items():
            for sigma, points in by_sigma.items():
                for point in points:
                    place = {"table": "improvement", "axis": axis, "estimator": name, "sigma": float(sigma)}
                    yield {**place, "x": point[axis], **{key: point[key] for key in point if key != axis}}
    for name, each in figures["heatmap"].items():
        for epsilon, row in zip(each["epsilon"], each["improvement"], strict=True):
            for share, improvement in zip(each["share"], row, strict=True):
                place = {"table": "heatmap", "estimator": name, "sigma": each["sigma"]}
                yield {**place, "share": share, "epsilon": epsilon, "theory": improvement}
    for coalition, points in figures["amplification"].items():
        for share, epsilon in points:
            yield {"table": "amplification", "coalition": float(coalition), "share": share, "epsilon": epsilon}


def rows_of_days(figures: Json, settings: Json) -> Rows:
    """Return a row for each design, daily limit and time, and one for each constant; `se`, of each error, are flat."""
    rows: Rows = []
    for design, by_limit in figures.items():
        if design == "constant":
            rows += [{"design": name, "when": "constant", **_scores(scores)} for name, scores in by_limit.items()]
            continue
        rows += [
            {"design": design, "daily_limit": float(limit), "when": when, **_scores(scores)}
            for limit, by_time in by_limit.items()
            for when, scores in by_time.items()
            if scores is not None
        ]
    return [row | {"settings": settings} for row in rows]


def _scores(scores: Json) -> dict[str, Any]:
    flat = {f"{name}_se": error for name, error in scores.get("se", {}).items()}
    return {name: score for name, score in scores.items() if name != "se"} | flat
