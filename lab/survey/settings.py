"""Policy of a survey: from a configuration file, or the technical report's."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hatcast.agents.config.settings import load_settings, parse_settings
from hatcast.stream.errors import HatcastError, RecordingError, SettingError
from hatcast.stream.policy.cells_file import read_cells_file
from hatcast.stream.policy.policy import Policy

_REPORT_POLICY: Final[Mapping[str, Any]] = {
    "name": "survey",
    "upper_bound": 65.0,
    "privacy": {"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 105.0},
    "estimator": {"name": "baseline"},
}
_NOT_COUNTED: Final = ("query", "resolutions", "fine_cells", "values")


def survey_policy(config: Path | None, feed_format: str, overrides: Mapping[str, Any], max_hats: int | None) -> Policy:
    """Return the policy of a configuration file, or else the report's, with overrides.

    overrides   `timezone`, `hours`, `h3_resolution`; the policy's `cells` is ignored, since a survey makes that list
    max_hats    K; None: the policy's
    Raises HatcastError with one line.
    """
    if config is not None:
        policy = load_settings(config, {}, lambda table: _counting_table(table) | {**overrides}).policy
    else:
        from hatcast.agents.demo.defaults import RECORDED_ZONES

        zone = {"timezone": RECORDED_ZONES[feed_format]} if feed_format in RECORDED_ZONES else {}
        if not zone and "timezone" not in overrides:
            raise HatcastError("the time zone of the recording is unknown: name --timezone or --config")
        try:
            policy = parse_settings({"policy": {**_REPORT_POLICY, **zone, **overrides}}, Path(), {}).policy
        except SettingError as error:
            raise HatcastError(str(error)) from None
    return dataclasses.replace(policy, max_hats_per_day=max_hats or policy.max_hats_per_day)


def read_public_candidates(path: Path, resolution: int) -> list[int]:
    """Return the H3 indexes of a candidates file, sorted. Raises RecordingError, SettingError: not public, or empty."""
    where = f"--candidates {path}"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(where, f"cannot be read ({type(error).__name__})", "name a readable file") from None
    candidates = read_cells_file(text, where, resolution)
    if candidates.source != "public":
        raise SettingError(
            where,
            f'has source = "{candidates.source}"',
            'make the list without looking at the data, and write source = "public"',
        )
    if not candidates.cells:
        raise SettingError(where, "lists no cell", "list H3 indexes, one per line")
    return sorted(candidates.cells)


def _counting_table(table: dict[str, Any]) -> dict[str, Any]:
    """Return the [policy] table without queries, several values and lists of cells, since nothing is released.

    The file of `cells` need not exist yet, except under `add_remove`, where the list is public and required. The
    resolution is the coarse one of several.
    """
    privacy, counted = table.get("privacy"), {key: value for key, value in table.items() if key not in _NOT_COUNTED}
    resolutions = table.get("resolutions")
    if isinstance(counted.get("value"), list):  # of several values; one value decides which readings count
        del counted["value"]
    if isinstance(resolutions, list) and resolutions:
        counted["h3_resolution"] = resolutions[0]
    hides_presence = isinstance(privacy, dict) and privacy.get("relation") == "add_remove"
    return counted if hides_presence else counted | {"cells": "all"}
