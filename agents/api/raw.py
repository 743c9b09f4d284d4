"""`hatcast.raw_means`: the true figures of HATs, which are not private."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hatcast.agents.api.batching import no_progress
from hatcast.agents.api.frames import Frame
from hatcast.agents.api.inputs import Data, Reading
from hatcast.agents.api.policy import settings_of
from hatcast.agents.api.warnings import HatcastWarning
from hatcast.agents.batch.retention import RetainTotals, Totals, in_unit
from hatcast.agents.batch.run import Run, fold_input
from hatcast.agents.config.settings import Settings
from hatcast.agents.errors.extras import require
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Columns, DeriveSpeed

if TYPE_CHECKING:
    import pyarrow as pa


class RawMeans(Frame):
    """True figures of HATs, in the unit of the policy. **Not private**: for tests and simulations, never to publish."""

    def __init__(self, hats: Mapping[str, Totals], policy: Policy) -> None:
        self._hats = {hat: in_unit(each, policy) for hat, each in hats.items()}
        self._unit = policy.released_value.unit

    def __len__(self) -> int:
        return len(self._hats)

    def to_arrow(self) -> "pa.Table":
        """Return a row for each HAT: cell, date, slot, users, readings, mean, maximum and unit. Not private."""
        require("pyarrow", "to_arrow()")
        import pyarrow as pa

        rows = [(*hat.split("/"), *totals) for hat, totals in sorted(self._hats.items())]
        columns = zip(*rows, strict=True) if rows else [()] * 7
        cell, date, slot, users, readings, total, maximum = map(list, columns)
        means = [each / number / 1000 for each, number in zip(total, readings, strict=True)]
        return pa.table(
            {
                "cell": pa.array(cell, pa.string()),
                "date": pa.array(date, pa.string()).cast(pa.date32()),
                "slot": pa.array(slot, pa.string()),
                "users": pa.array(users, pa.int64()),
                "readings": pa.array(readings, pa.int64()),
                "mean": pa.array(means, pa.float64()),
                "maximum": pa.array([each / 1000 for each in maximum], pa.float64()),
                "unit": pa.array([self._unit] * len(self), pa.string()),
            }
        )


def raw_means(
    data: Data,
    policy: str | Path | Policy | Settings,
    *,
    format: str | None = None,  # noqa: A002 - the option's name
    columns: Mapping[str, str] | Columns | None = None,
    unit: str | None = None,
    derive_speed: DeriveSpeed | None = None,
) -> RawMeans:
    """Return the true figures of each HAT, as `hatcast batch --contributions` does. **Not private.**

    The arguments are those of `batch`. Nothing is released or charged. Raises HatcastError.
    """
    settings = settings_of(policy)
    lines: list[str] = []
    totals = RetainTotals()
    try:
        given = Reading(format, columns, unit, derive_speed).input(data, settings.policy)
        run = Run(settings, given, None, no_progress, lines.append)
        fold_input(run, totals)
    finally:
        for line in lines:
            warnings.warn(line, HatcastWarning, stacklevel=2)
    return RawMeans(totals.hats, settings.policy)
