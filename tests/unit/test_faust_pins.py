"""What agents/kafka does as Faust or aiokafka does, and what it relies on without a test that would notice a change.

They must be those that we read. If one is red after an upgrade: read what changed, compare it with what we make of it,
and run tests/integration/test_record_batches.py and tests/faults. Only then write the new hash here.

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
    # batches/thread.py and consumer.py: partitions are given up before the group is joined again, all of them, and the
    # generation is set before they are assigned.
    "aiokafka.consumer.group_coordinator:GroupCoordinator._on_join_prepare": "4d9524afc0ee",
    "aiokafka.consumer.group_coordinator:GroupCoordinator._on_join_complete": "0b0b3d204b40",
    "faust.transport.drivers.aiokafka:ConsumerRebalanceListener": "f3d04f29dfb3",
    "faust.transport.consumer:ConsumerThread.on_partitions_revoked": "c44013f1259c",
    "faust.transport.consumer:ThreadDelegateConsumer.threadsafe_partitions_revoked": "6c55d67e9eb0",
    # batches/consumer.py: on_partitions_assigned does what this does at the end of a rebalance; no flow goes on before.
    "faust.tables.recovery:Recovery._resume_streams": "d986a6710c1a",
    "faust.app.base:App._on_partitions_revoked": "d5c895bbe57d",
    # batches/thread.py: whether the worker is in its group, for /readyz.
    "aiokafka.consumer.group_coordinator:GroupCoordinator.need_rejoin": "61ae72b2a311",
    "aiokafka.consumer.group_coordinator:GroupCoordinator.coordinator_dead": "ba1eda0254af",
    # batches/fetched.py: which batches count, as in `_unpack_records`, and by this class's own functions.
    "aiokafka.consumer.fetcher:PartitionRecords": "94aa0da0dbec",
    # batches/fetched.py: chunks take the place of records, from the response to the poll.
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
