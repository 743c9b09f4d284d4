"""Record types of the topics. JSON Schemas, AsyncAPI, `tail` and Python consumers are derived from them.

Forward compatible: a new field has a default, and the type and meaning of a field never change, so that today's
consumer can read tomorrow's records. A field without a value is absent, never null; the `RULES` of a type say when an
optional field is present.
"""

from hatcast.stream.records.clusters import ClusterAnswerRecord as ClusterAnswerRecord
from hatcast.stream.records.clusters import ClusterRecord as ClusterRecord
from hatcast.stream.records.clusters import ClustersRecord as ClustersRecord
from hatcast.stream.records.days import BUDGET as BUDGET
from hatcast.stream.records.days import QUERY as QUERY
from hatcast.stream.records.days import BudgetRecord as BudgetRecord
from hatcast.stream.records.days import EpsilonDelta as EpsilonDelta
from hatcast.stream.records.days import QueryRecord as QueryRecord
from hatcast.stream.records.days import ReservedRecord as ReservedRecord
from hatcast.stream.records.days import SpentRecord as SpentRecord
from hatcast.stream.records.estimates import ESTIMATE as ESTIMATE
from hatcast.stream.records.estimates import RUNNING as RUNNING
from hatcast.stream.records.estimates import EstimateRecord as EstimateRecord
from hatcast.stream.records.estimates import NormalRecord as NormalRecord
from hatcast.stream.records.estimates import RunningRecord as RunningRecord
from hatcast.stream.records.fields import NoiseRecord as NoiseRecord
from hatcast.stream.records.inputs import ReportRecord as ReportRecord
from hatcast.stream.records.inputs import TelemetryRecord as TelemetryRecord
from hatcast.stream.records.releases import RELEASE as RELEASE
from hatcast.stream.records.releases import ContinualRecord as ContinualRecord
from hatcast.stream.records.releases import ContinualSumRecord as ContinualSumRecord
from hatcast.stream.records.releases import CountsRecord as CountsRecord
from hatcast.stream.records.releases import ReleaseRecord as ReleaseRecord
from hatcast.stream.records.releases import ResidualQueryRecord as ResidualQueryRecord
from hatcast.stream.records.releases import UsersRecord as UsersRecord
from hatcast.stream.records.releases import ValueRecord as ValueRecord
