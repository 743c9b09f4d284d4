"""Clusterings with devices: the records of `hats.clusters` and of `cluster-answers`."""

from typing import Annotated, ClassVar, Literal

import msgspec

from hatcast.stream.records.fields import Date, Epsilon, Name, PolicyId, Slot, Unit, When, text
from hatcast.stream.records.releases import UsersRecord

ClusteringId = Annotated[str, text("^[0-9a-f]{32}$", "of the clustering, random")]
Coordinates = Annotated[tuple[float, ...], msgspec.Meta(description="one number for each of `slots`, in order")]


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster of a result."""

    centre: Annotated[Coordinates, msgspec.Meta(description="mean by slot, in `unit`; noisy")]
    users: Annotated[float, msgspec.Meta(ge=0, description="noisy number of users, of both groups")]
    noise_deviation: Annotated[
        Coordinates, msgspec.Meta(description="standard deviation of the noise on `centre`; 0 if it never moved")
    ]
    central_weight: Annotated[Coordinates, msgspec.Meta(description="weight of the trusted users' mean, 0 to 1")]
    last_moved: Annotated[
        int, msgspec.Meta(ge=0, description="round that computed the centre; 0: its start, which says nothing")
    ]


class ClustersRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One round of a clustering, which devices answer, or its result.

    All rounds of a clustering have the same parameters.
    """

    RULES: ClassVar = (
        When("status", ("round",), has=("round", "closes", "centres")),
        When(
            "status",
            ("released",),
            has=("relation", "privacy_unit", "blend", "users", "unit", "clusters"),
            allows=("ledger",),
        ),
    )

    status: Annotated[Literal["round", "released"], msgspec.Meta(description="`released`: the result")]
    clusters_id: Annotated[
        str, text("^[0-9a-f]{32}/([0-9]+|result)$", "clustering/round or clustering/result; also the record's key")
    ]
    clustering: ClusteringId
    policy: Name
    policy_id: PolicyId
    date: Annotated[Date, msgspec.Meta(description="local date whose users are clustered")]
    slots: Annotated[tuple[Slot, ...], msgspec.Meta(description="the coordinates")]
    epsilon: Annotated[Epsilon, msgspec.Meta(description="of the whole clustering, for each user")]
    iterations: Annotated[int, msgspec.Meta(ge=1, description="number of rounds")]
    seed: Annotated[int, msgspec.Meta(ge=0, description="of the first centres")]
    round: Annotated[int, msgspec.Meta(ge=1, description="number of the round")] | None = None
    closes: Annotated[int, msgspec.Meta(ge=0, description="ms UTC; later answers are not counted")] | None = None
    centres: (
        Annotated[
            tuple[Coordinates, ...], msgspec.Meta(description="current centres, in the policy's unit, on its grid")
        ]
        | None
    ) = None
    relation: (
        Annotated[Literal["replace"], msgspec.Meta(description="what the noise hides: a vehicle's speeds")] | None
    ) = None
    privacy_unit: Annotated[Literal["user_day"], msgspec.Meta(description="one vehicle's day")] | None = None
    blend: Annotated[Literal["pwh", "tcm_only", "lm_only"], msgspec.Meta(description="groups in use")] | None = None
    users: UsersRecord | None = None
    unit: Unit | None = None
    clusters: Annotated[tuple[ClusterRecord, ...], msgspec.Meta(description="the K clusters")] | None = None
    ledger: Annotated[Name, msgspec.Meta(description="reservation that has charged the trusted users")] | None = None


class ClusterAnswerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device's answer to a round. Its noise was added by the device."""

    clustering: ClusteringId
    round: Annotated[int, msgspec.Meta(ge=1, description="number of the round")]
    id: Annotated[str, text("^[0-9a-f]{32}$", "of the device, random, new for each clustering; also the record's key")]
    cluster: Annotated[int, msgspec.Meta(ge=0, description="index of a centre, by randomised response")]
    vector: (
        Annotated[
            Coordinates,
            msgspec.Meta(
                description="in the policy's unit, noisy; may be outside of its range. Only in the first answer"
            ),
        ]
        | None
    ) = None
