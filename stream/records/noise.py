"""Parts that releases and answers to queries share: the fields of an answer, and the distribution of its noise."""

from typing import Annotated, ClassVar, Final, Literal

import msgspec

from hatcast.stream.records.fields import When

ANSWER: Final = ("mean", "raw", "unit", "noise", "interval95", "covers")


class NoiseRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Distribution of the noise in `raw`. Public.

    `laplace`: added to the value. `laplace_ratio`: the value is a ratio of two sums, each with Laplace noise. A blend
    combines a mean with noise of `central_scale` and devices' reports, each with noise of `local_scale`. `continual`: a
    sum of noises of standard deviation `sd`, correlated with those of the cell's other slots.
    """

    RULES: ClassVar = (
        When("kind", ("laplace",), has=("scale",)),
        When("kind", ("laplace_blend", "gaussian_blend"), allows=("central_scale", "local_scale")),
        When("kind", ("continual",), has=("sd",)),
    )

    kind: Annotated[
        Literal["laplace", "laplace_ratio", "laplace_blend", "gaussian_blend", "continual"],
        msgspec.Meta(description="distribution"),
    ]
    scale: (
        Annotated[
            float,
            msgspec.Meta(
                ge=0, description="in `unit`; 0 if no noise was needed; absent for a ratio, which has no single scale"
            ),
        ]
        | None
    ) = None
    central_scale: Annotated[float, msgspec.Meta(gt=0, description="in `unit`; absent: no such noise")] | None = None
    local_scale: Annotated[float, msgspec.Meta(gt=0, description="in `unit`; absent: no such noise")] | None = None
    sd: Annotated[float, msgspec.Meta(ge=0, description="standard deviation, in `unit`")] | None = None
