"""Which policy a survey counts by: that of a file, or the report's."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hatcast.agents.config.settings import load_settings, settings_of
from hatcast.stream.errors import HatcastError, RecordingError, SettingError
from hatcast.stream.policy.cells_file import read_cells_file
from hatcast.stream.policy.policy import Policy

_REPORTED: Final[Mapping[str, Any]] = {
    "name": "survey",
    "upper_bound": 65.0,
    "privacy": {"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 105.0},
    "estimator": {"name": "baseline"},
}


def survey_policy(config: Path | None, feed_format: str, given: Mapping[str, Any], max_hats: int | None) -> Policy:
    """The policy of a configuration file, or else the report's, with what was given instead.

    given     `timezone`, `hours`, `h3_resolution`; `cells` is not read, since a survey makes that list
    max_hats  K
    Raises HatcastError with one line.
    """
    if config is not None:
        policy = load_settings(config, {}, lambda table: _to_count_by(table) | {**given}).policy
    else:
        from hatcast.agents.demo.defaults import RECORDED_ZONES

        zone = {"timezone": RECORDED_ZONES[feed_format]} if feed_format in RECORDED_ZONES else {}
        if not zone and "timezone" not in given:
            raise HatcastError("the time zone of the recording is not known: name --timezone or --config")
        try:
            policy = settings_of({"policy": {**_REPORTED, **zone, **given}}, Path(), {}).policy
        except SettingError as refusal:
            raise HatcastError(str(refusal)) from None
    return dataclasses.replace(policy, max_hats_per_day=max_hats or policy.max_hats_per_day)


def public_candidates(path: Path, resolution: int) -> list[int]:
    """The H3 indexes of a file of candidates, in order. Raises RecordingError, SettingError: not public, or none."""
    where = f"--candidates {path}"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(where, f"cannot be read ({type(error).__name__})", "name a readable file") from None
    listed = read_cells_file(text, where, resolution)
    if listed.source != "public":
        raise SettingError(
            where,
            f'has source = "{listed.source}"',
            'make the list without looking at the data, and write source = "public"',
        )
    if not listed.cells:
        raise SettingError(where, "lists no cell", "list H3 indexes, one a line")
    return sorted(listed.cells)


def _to_count_by(table: dict[str, Any]) -> dict[str, Any]:
    """The table without its queries: nothing is released. The file that `cells` names need not be there yet.

    Under `add_remove` that list is public and has to be.
    """
    privacy, counted = table.get("privacy"), {key: value for key, value in table.items() if key != "query"}
    hides_presence = isinstance(privacy, dict) and privacy.get("relation") == "add_remove"
    return counted if hides_presence else counted | {"cells": "all"}
