"""What agents/kafka does as Faust or aiokafka does, and what it relies on without a test that would notice a change.

They must be those that we read. If one is red after an upgrade: read what changed, compare it with what we make of it,
and run tests/integration/test_record_batches.py, tests/integration/test_rebalances.py and tests/faults. Only then write
the new hash here.

What agents/kafka overrides needs no pin: if Faust does not call it any more, tests/integration/test_record_batches.py
fails.
"""

import hashlib
import importlib
import inspect
from operator import attrgetter
from typing import Final

import pytest

PINS: Final = {  # faust-streaming 0.15.3, mode-streaming 0.7.1, aiokafka 0.14.0
    # batches/consumer.py: `_begin` does what this does at the end of a rebalance.
    "faust.tables.recovery:Recovery._resume_streams": "d986a6710c1a",
    # batches/fetched.py: which batches count, as in `_unpack_records`, and by this class's own functions.
    "aiokafka.consumer.fetcher:PartitionRecords": "94aa0da0dbec",
    # batches/fetched.py: columns take the place of records, from the response to the poll.
    "aiokafka.consumer.fetcher:Fetcher._proc_fetch_request": "59bf948fff47",
    "aiokafka.consumer.fetcher:Fetcher.fetched_records": "be4348896b9b",
    "aiokafka.consumer.fetcher:FetchResult": "d7db13f06de8",
    # kafka/aio.py: the backoff replaces it.
    "aiokafka.client:AIOKafkaClient._get_conn": "68ce5d839171",
}


def hash_of(name: str) -> str:
    module, _, attribute = name.partition(":")
    source = inspect.getsource(attrgetter(attribute)(importlib.import_module(module)))
    return hashlib.sha256(source.encode()).hexdigest()[:12]


@pytest.mark.parametrize("name", PINS)
def test_a_function_that_batches_rely_on_is_the_one_we_read(name: str) -> None:
    assert hash_of(name) == PINS[name]
