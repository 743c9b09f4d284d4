"""Schemas of the topics' records, as JSON Schema 2020-12 and as an AsyncAPI 3.0 document.

`python -m tools.schemas` writes schemas/*.schema.json, schemas/asyncapi.yaml and, for the map's API,
schemas/openapi.json from the types; `--check` compares them. To add a record or a topic:

1. add its type, with descriptions, units and `RULES`, to stream/records/, and one entry to `RECORDS` (records.py); a
   new topic also to `TopicsTable` and agents/kafka/topic_rules.py;
2. add golden messages to tests/contracts/goldens.py that together have every field and every status;
3. run `python -m tests.contracts --write && python -m tools.schemas`. `scripts/check` reports what is missing.

A new field needs a default, so that the frozen goldens of earlier versions still decode, and a golden that has it.
"""

from tools.schemas.json_schema import FOLDER, schema_of
from tools.schemas.records import RECORDS, RecordType

__all__ = ["FOLDER", "RECORDS", "RecordType", "schema_of"]
