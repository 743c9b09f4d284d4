"""Part of a release of a policy with `[policy.continual]`: the running sum of its cell since the horizon's start."""

from typing import Annotated, ClassVar, Literal

import msgspec

from hatcast.stream.records.fields import Date, When


class ContinualSumRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The noisy sum of all values since the horizon's start. A value is the mean of one user in one slot."""

    value: Annotated[float, msgspec.Meta(description="in `unit`, with 3 digits")]
    sd: Annotated[float, msgspec.Meta(ge=0, description="standard deviation of its noise, in `unit`")]
    interval95: Annotated[
        tuple[float, float], msgspec.Meta(description="around `value`, in `unit`: 95 % of the noise is within")
    ]


class ContinualRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A running sum since the horizon's start. The release's mean is this sum divided by the number of its values.

    The release's `start` is that of the horizon, and its `end` that of the slot: it is not the mean of one slot.
    """

    RULES: ClassVar = (When("sum", needs=("count",)),)

    horizon: Annotated[Date, msgspec.Meta(description="first local date of the horizon, which also names it")]
    last_date: Annotated[Date, msgspec.Meta(description="last local date of the horizon")]
    index: Annotated[int, msgspec.Meta(ge=0, description="number of this slot in the horizon, from 0")]
    slots: Annotated[int, msgspec.Meta(ge=1, description="slots of the horizon")]
    kind: Annotated[
        Literal["laplace", "gaussian", "tree", "kary", "toeplitz", "blt", "withhold_release"],
        msgspec.Meta(description="mechanism; see docs/specification/continual.md"),
    ]
    max_cells: Annotated[
        int,
        msgspec.Meta(ge=1, description="most cells that a user enters: the horizon costs it `max_cells` x `epsilon`"),
    ]
    delta: (
        Annotated[float, msgspec.Meta(gt=0, lt=1, description="delta of Gaussian noise, of the cell's whole horizon")]
        | None
    ) = None
    count: (
        Annotated[
            int,
            msgspec.Meta(ge=0, description="values in the sum, one of each user and slot; absent if the sum is lost"),
        ]
        | None
    ) = None
    sum: Annotated[ContinualSumRecord, msgspec.Meta(description="only of a `released` record")] | None = None
