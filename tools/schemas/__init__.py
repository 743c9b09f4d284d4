"""The contracts: what stands on each topic, as JSON Schema 2020-12 and as an AsyncAPI 3.0 document.

`python -m tools.schemas` writes schemas/*.schema.json and schemas/asyncapi.yaml from the types; with `--check` it says
whether they agree. To add a record, or a topic:

1. its type, with descriptions, units and `RULES`, in stream/records.py, and one entry in `RECORDS` (records.py); a
   new topic also in `TopicsTable` and in agents/kafka/topic_rules.py;
2. its golden messages in tests/contracts/goldens.py, so many that each field and each status is in one of them;
3. `python -m tests.contracts --write && python -m tools.schemas`. `scripts/check` says what is still missing.

A new field needs a default, and a golden that has it; the frozen goldens of earlier versions then still read.
"""

from tools.schemas.json_schema import FOLDER, schema_of
from tools.schemas.records import RECORDS, RecordType

__all__ = ["FOLDER", "RECORDS", "RecordType", "schema_of"]
