"""What agents/kafka replaces of Faust and aiokafka, and what it relies on.

They must be those that we read. If one is red after an upgrade: read what changed, compare it with what we make of it,
and run tests/integration/test_record_batches.py and tests/faults. Only then write the new hash here.
"""

import hashlib
import importlib
import inspect
from operator import attrgetter
from typing import Final

import pytest

PINS: Final = {  # faust-streaming 0.15.3, mode-streaming 0.7.1, aiokafka 0.14.0
    "faust.transport.consumer:Consumer.perform_seek": "0e8c130ff4b0",
    "faust.transport.consumer:Consumer.getmany": "4b168d84882a",
    "faust.transport.consumer:Consumer._drain_messages": "44a2500309e8",
    "faust.transport.consumer:Consumer._add_gap": "4df2573ded7c",
    "faust.transport.consumer:Consumer._new_offset": "1d2c7ea89a7a",
    "faust.transport.consumer:Consumer._should_commit": "5ce941793947",
    "faust.transport.consumer:Consumer._commit_offsets": "1a6979904118",
    "faust.transport.consumer:Consumer._filter_tps_with_pending_acks": "f6f923977423",
    "faust.transport.consumer:Consumer.ack": "5fcf41cf4515",
    "faust.transport.consumer:Consumer.on_buffer_full": "c8961679e0bc",
    "faust.transport.consumer:Consumer.on_buffer_drop": "4b57e8a418d5",
    "faust.transport.consumer:Consumer.on_partitions_assigned": "29ce96596f05",
    "faust.transport.consumer:Consumer.on_partitions_revoked": "d04b7ae72c6f",
    "faust.transport.consumer:Consumer.on_stop": "45b1d2210ce2",
    "faust.transport.consumer:Fetcher": "c922e4ab78d9",
    "faust.transport.consumer:ConsumerThread.on_partitions_revoked": "c44013f1259c",
    "faust.transport.consumer:ConsumerThread.on_partitions_assigned": "e59e8dda4372",
    "faust.transport.consumer:ThreadDelegateConsumer.__init__": "7072ae80eac1",
    "faust.transport.conductor:ConductorCompiler.build": "837cf521368c",
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._create_consumer": "a4dc6ba0681a",
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._create_worker_consumer": "c2701bfc3e6f",
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._fetch_records": "39a2c6c79fc1",
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread._commit": "932852ce7a23",
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread.close": "d22efc59a1df",
    "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread.on_thread_stop": "8dfc004e258b",
    "faust.transport.drivers.aiokafka:Consumer._to_message": "7c24f6511b2f",
    "faust.transport.drivers.aiokafka:Consumer.on_stop": "173f86b366f3",
    "faust.transport.drivers.aiokafka:ConsumerRebalanceListener": "f3d04f29dfb3",
    "faust.tables.recovery:Recovery._resume_streams": "d986a6710c1a",
    "faust.app.base:App._on_partitions_revoked": "d5c895bbe57d",
    "faust.app.base:App._on_partitions_assigned": "de932b7927db",
    "faust.app.base:App._stop_consumer": "55854a5de12c",
    "faust.app.base:App.on_stop": "bfe5a933defb",
    "faust.app.base:BootStrategy": "ecc05db10abc",
    "faust.serializers.schemas:Schema.compile": "d46eec5ce319",
    "mode.threads:ServiceThread.start": "f11841038a03",
    "mode.threads:ServiceThread._start_thread": "a06373478446",
    "mode.threads:ServiceThread._serve": "67809eae0957",
    "aiokafka.consumer.fetcher:FetchResult.check_assignment": "b5340df67e3f",
    "aiokafka.consumer.fetcher:FetchResult._update_position": "83fb1473bf10",
    "aiokafka.consumer.fetcher:FetchError.check_raise": "f03628e12d3f",
    "aiokafka.consumer.fetcher:PartitionRecords": "94aa0da0dbec",
    "aiokafka.consumer.fetcher:Fetcher._fetch_requests_routine": "2a8ec5932644",
    "aiokafka.consumer.fetcher:Fetcher._get_actions_per_node": "1dab2cf937d1",
    "aiokafka.consumer.fetcher:Fetcher._create_fetch_waiter": "61d840568746",
    "aiokafka.consumer.fetcher:Fetcher.fetched_records": "be4348896b9b",
    "aiokafka.consumer.fetcher:Fetcher.seek_to": "f0ba6aba6c22",
    "aiokafka.consumer.subscription_state:SubscriptionState.fetch_context": "ff2a654dca23",
    "aiokafka.consumer.subscription_state:TopicPartitionState": "2b83334afadf",
    "aiokafka.consumer.group_coordinator:GroupCoordinator._on_join_prepare": "4d9524afc0ee",
    "aiokafka.consumer.group_coordinator:GroupCoordinator._on_join_complete": "0b0b3d204b40",
    "aiokafka.consumer.group_coordinator:GroupCoordinator._heartbeat_routine": "61d010289522",
    "aiokafka.consumer.fetcher:Fetcher._proc_fetch_request": "59bf948fff47",
    "aiokafka.consumer.group_coordinator:GroupCoordinator.need_rejoin": "61ae72b2a311",
    "aiokafka.consumer.group_coordinator:GroupCoordinator.coordinator_dead": "ba1eda0254af",
    "aiokafka.consumer.group_coordinator:GroupCoordinator.close": "f30d83108945",
    "aiokafka.producer.transaction_manager:TransactionManager.set_pid_and_epoch": "1e174622d40d",
    "aiokafka.client:AIOKafkaClient._get_conn": "68ce5d839171",
}


@pytest.mark.parametrize("name", PINS)
def test_a_function_that_batches_rely_on_is_the_one_we_read(name: str) -> None:
    module, _, attribute = name.partition(":")
    source = inspect.getsource(attrgetter(attribute)(importlib.import_module(module)))
    assert hashlib.sha256(source.encode()).hexdigest()[:12] == PINS[name]
