"""Clusterings with devices: the records of `hats.clusters` and of `cluster-answers`."""

from typing import Annotated, ClassVar, Literal

import msgspec

from hatcast.stream.records.fields import Date, Epsilon, Name, PolicyId, Slot, Unit, When, about, text
from hatcast.stream.records.releases import UsersRecord

ClusteringId = Annotated[str, text("^[0-9a-f]{32}$", "of the clustering, random")]
Coordinates = Annotated[tuple[float, ...], about("one number for each of `slots`, in order")]


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster of a result."""

    centre: Annotated[Coordinates, about("mean by slot, in `unit`; noisy")]
    users: Annotated[float, about("noisy number of users, of both groups", ge=0)]
    noise_deviation: Annotated[Coordinates, about("standard deviation of the noise on `centre`; 0 if it never moved")]
    central_weight: Annotated[Coordinates, about("weight of the trusted users' mean, 0 to 1")]
    last_moved: Annotated[int, about("round that computed the centre; 0: its start, which says nothing", ge=0)]


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

    status: Annotated[Literal["round", "released"], about("`released`: the result")]
    clusters_id: Annotated[
        str, text("^[0-9a-f]{32}/([0-9]+|result)$", "clustering/round or clustering/result; also the record's key")
    ]
    clustering: ClusteringId
    policy: Name
    policy_id: PolicyId
    date: Annotated[Date, about("local date whose users are clustered")]
    slots: Annotated[tuple[Slot, ...], about("the coordinates")]
    epsilon: Annotated[Epsilon, about("of the whole clustering, for each user")]
    iterations: Annotated[int, about("number of rounds", ge=1)]
    seed: Annotated[int, about("of the first centres", ge=0)]
    round: Annotated[int, about("number of the round", ge=1)] | None = None
    closes: Annotated[int, about("ms UTC; later answers are not counted", ge=0)] | None = None
    centres: Annotated[tuple[Coordinates, ...], about("current centres, in the policy's unit, on its grid")] | None = (
        None
    )
    relation: Annotated[Literal["replace"], about("what the noise hides: a vehicle's speeds")] | None = None
    privacy_unit: Annotated[Literal["user_day"], about("one vehicle's day")] | None = None
    blend: Annotated[Literal["pwh", "tcm_only", "lm_only"], about("groups in use")] | None = None
    users: UsersRecord | None = None
    unit: Unit | None = None
    clusters: Annotated[tuple[ClusterRecord, ...], about("the K clusters")] | None = None
    ledger: Annotated[Name, about("reservation that has charged the trusted users")] | None = None


class ClusterAnswerRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device's answer to a round. Its noise was added by the device."""

    clustering: ClusteringId
    round: Annotated[int, about("number of the round", ge=1)]
    id: Annotated[str, text("^[0-9a-f]{32}$", "of the device, random, new for each clustering; also the record's key")]
    cluster: Annotated[int, about("index of a centre, by randomised response", ge=0)]
    vector: (
        Annotated[
            Coordinates, about("in the policy's unit, noisy; may be outside of its range. Only in the first answer")
        ]
        | None
    ) = None
