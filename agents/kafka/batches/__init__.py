"""Faust with record batches: each Faust message carries one batch of a partition's records.

Stock Faust passes one record at a time, and its `_drain_messages` starts two tasks for each message to race it against
a rebalance. Here a message carries a batch of up to 2,000 records, and a rebalance stops only what it moves. Offsets
chain the batches of a partition:

    group  -> librdkafka -> GroupMember (who reads what) -> BatchConsumer
    broker -> aiokafka -> ConsumerThread (chains) -> BatchConsumer (epochs, capacity) -> Faust's queue -> ingest agent
                                                                                             BatchHandler <-'
"""
