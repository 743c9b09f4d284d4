"""Faust with frames: one message is one partition's fetched chunk.                            [design 4, Frames]

Stock Faust hands over one record at a time, because `_drain_messages` races every message against a rebalance with two
tasks. Here a frame of up to 500 records crosses in one message, chained by positions:

    broker -> aiokafka -> ConsumerThread (chains) -> BatchConsumer (epochs, room) -> Faust's queue -> the ingest agent
                                                                                         BatchHandler <-'
"""

from hatcast.agents.kafka.batches.application import BatchApp, batch_app
from hatcast.agents.kafka.batches.batch import BatchHandler, BatchSettings, RecordBatch
from hatcast.agents.kafka.batches.consumer import BatchConsumer

__all__ = ["BatchApp", "BatchConsumer", "BatchHandler", "BatchSettings", "RecordBatch", "batch_app"]
