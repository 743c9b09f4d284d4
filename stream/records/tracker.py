"""Part of a tracker's release: its query."""

from typing import Annotated

import msgspec

from hatcast.stream.records.fields import Slot


class ResidualQueryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A query of a tracker: how far buses are from the prediction. docs/specification/tracker.md has the symbols."""

    number: Annotated[int, msgspec.Meta(ge=1, description="of the query on its date")]
    sum: Annotated[int, msgspec.Meta(description="Y: the released integer, with its noise")]
    clip: Annotated[float, msgspec.Meta(gt=0, description="z: clip of a residual, in its standard deviations")]
    scale: Annotated[int, msgspec.Meta(gt=0, description="D: scale of the discrete Laplace noise in `sum`")]
    steps: Annotated[int, msgspec.Meta(gt=0, description="T: steps of one unit of payment")]
    weight: Annotated[float, msgspec.Meta(gt=0, description="W: sum of payments over standard deviations")]
    kept: Annotated[float, msgspec.Meta(gt=0, le=1, description="k: what clipping leaves of a shift of all residuals")]
    members: Annotated[int, msgspec.Meta(ge=1, description="number of users that pay")]
    charges: Annotated[float, msgspec.Meta(ge=0, description="epsilon that all users pay, in sum")]
    limit: Annotated[
        float, msgspec.Meta(gt=0, description="epsilon that all queries of the date can cost a user: reserved")
    ]
    hats: Annotated[
        tuple[tuple[Slot, float, float], ...],
        msgspec.Meta(description="of each HAT: slot, weight g, and beta, the regression on its own deviation"),
    ]
    features: Annotated[
        tuple[float, float], msgspec.Meta(description="weights of the coefficients of both features of HATs")
    ]
    variance: Annotated[float, msgspec.Meta(gt=0, description="of all that the model does not have, noise included")]
    noise_variance: Annotated[float, msgspec.Meta(gt=0, description="of the noise")]
