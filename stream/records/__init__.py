"""Record types of the topics. JSON Schemas, AsyncAPI, `tail` and Python consumers are derived from them.

Forward compatible: a new field has a default, and the type and meaning of a field never change, so that today's
consumer can read tomorrow's records. A field without a value is absent, never null; the `RULES` of a type say when an
optional field is present.
"""

from hatcast.stream.records.clusters import ClusterAnswerRecord, ClusterRecord, ClustersRecord
from hatcast.stream.records.days import (
    BUDGET,
    QUERY,
    BudgetRecord,
    EpsilonDelta,
    QueryRecord,
    ReservedRecord,
    SpentRecord,
)
from hatcast.stream.records.estimates import ESTIMATE, RUNNING, EstimateRecord, NormalRecord, RunningRecord
from hatcast.stream.records.fields import NoiseRecord
from hatcast.stream.records.inputs import ReportRecord, TelemetryRecord
from hatcast.stream.records.releases import (
    RELEASE,
    ContinualRecord,
    ContinualSumRecord,
    CountsRecord,
    ReleaseRecord,
    ResidualQueryRecord,
    UsersRecord,
    ValueRecord,
)

__all__ = [
    "BUDGET",
    "ESTIMATE",
    "QUERY",
    "RELEASE",
    "RUNNING",
    "BudgetRecord",
    "ClusterAnswerRecord",
    "ClusterRecord",
    "ClustersRecord",
    "ContinualRecord",
    "ContinualSumRecord",
    "CountsRecord",
    "EpsilonDelta",
    "EstimateRecord",
    "NoiseRecord",
    "NormalRecord",
    "QueryRecord",
    "ReleaseRecord",
    "ReportRecord",
    "ReservedRecord",
    "ResidualQueryRecord",
    "RunningRecord",
    "SpentRecord",
    "TelemetryRecord",
    "UsersRecord",
    "ValueRecord",
]
