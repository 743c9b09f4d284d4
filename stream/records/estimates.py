"""Estimates: the records of `hats.estimates`."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from hatcast.stream.records.fields import (
    CELL,
    DATE,
    NAME,
    TIME,
    Bound,
    Cell,
    Date,
    Instant,
    Name,
    PolicyId,
    Remainder,
    Slot,
    Speed,
    Unit,
    ValueName,
    When,
    about,
    text,
)


class NormalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A mean as a normal distribution, with 2 digits, or more for a value with a narrow range."""

    value: Annotated[float, about("in `unit`, clipped to the value's range")]
    sd: Annotated[float, about("standard deviation, in `unit`", ge=0)]
    interval95: Annotated[tuple[Bound, Bound], about("95 % of the distribution, clipped to the value's range")]


class EstimateRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One estimate on `hats.estimates`: what all releases up to its slot say of a cell.

    Post-processing of `hats.means`, so it costs nothing. A later record of a key replaces an earlier one.
    """

    RULES: ClassVar = (When("stage", ("live", "settled"), needs=("mean",)), When("mean", allows=("residual_z",)))

    estimate_id: Annotated[str, text(f"^{NAME}/{DATE}T{TIME}/{CELL}$", "policy/dateTslot/cell; also the record's key")]
    policy_id: PolicyId
    stage: Annotated[
        Literal["live", "settled", "predicted"],
        about(
            "`live`: at the close of the slot, with a release of the HAT; `predicted`: without one;"
            " `settled`: again at the end of the date, with all of its releases"
        ),
    ]
    cell: Cell
    remainder: Remainder | None = None
    date: Date
    slot: Slot
    start: Instant
    end: Instant
    value: ValueName | None = None
    speed: Speed | None = None
    unit: Unit
    road: Annotated[
        NormalRecord,
        about(
            "mean of the road in this cell and slot, without the chance of which vehicles came: its"
            " interval holds the mean of their readings less often than 95 %"
        ),
    ]
    mean: Annotated[
        NormalRecord | None,
        about(
            "mean of all readings of the HAT, which its interval holds; absent without a release, and"
            " without counts of a tracker"
        ),
    ] = None
    residual_z: (
        Annotated[
            float,
            about(
                "difference of the last release about the HAT from what was expected of it, in standard"
                " deviations; absent without a release, or if it has no noise"
            ),
        ]
        | None
    ) = None
    alarm: (
        Annotated[
            Literal["hexagon", "neighbours", "city"],
            about(
                "where speeds are far below what was expected, as an incident makes them: the smallest area"
                " of which the releases of the date up to this slot say so: the `hexagon` alone, it with its"
                " `neighbours`, or the whole `city`; absent without such an alarm, which is no proof that all is well"
            ),
        ]
        | None
    ) = None


ESTIMATE: Final = msgspec.json.Decoder(EstimateRecord)


class RunningRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One running mean on `hats.running`: the mean of a cell over a window of slots up to this one.

    Post-processing of `hats.means`, so it costs nothing. The topic keeps the last one of each policy, name and cell.
    """

    RULES: ClassVar = (When("mean", has=("weights",)),)

    running_id: Annotated[str, text(f"^{NAME}/{NAME}/{DATE}T{TIME}/{CELL}$", "policy/name/dateTslot/cell")]
    policy: Name
    policy_id: PolicyId
    stage: Annotated[
        Literal["live", "settled"],
        about("`live`: at the close of the slot; `settled`: again after the settlement of a tracker's `date`"),
    ]
    name: Annotated[str, text(f"^{NAME}$", "of the policy's `[[policy.running]]`")]
    window: Annotated[
        Literal["today", "24h", "7d", "same_hour", "period"],
        about(
            "slots in it: of the local date up to this one; that ended in the last 24 hours or 7 days; or"
            " this hour of all weekdays (or of all days of weekends) of a number of dates; or a part of the day, such"
            " as the morning peak, of its date or of such a number"
        ),
    ]
    of: Annotated[
        Literal["releases", "estimates"], about("its inputs: the releases, or the model behind `hats.estimates`")
    ]
    cell: Cell
    remainder: Remainder | None = None
    date: Date
    slot: Slot
    start: Annotated[Instant, about("of the window: ISO 8601 with an offset")]
    end: Annotated[Instant, about("of the window and of its last slot: ISO 8601 with an offset")]
    slots: Annotated[int, about("number of slots of the window that are in the mean", ge=0)]
    value: ValueName | None = None
    speed: Speed | None = None
    unit: Unit
    weights: (
        Annotated[
            Literal["readings", "users", "slots"],
            about(
                "weight of a slot: its `readings` or its `users`, as published; or all `slots` alike,"
                " without public counts"
            ),
        ]
        | None
    ) = None
    mean: (
        Annotated[NormalRecord, about("weighted mean of the slots; absent if no slot of the window has a number")]
        | None
    ) = None


RUNNING: Final = msgspec.json.Decoder(RunningRecord)
