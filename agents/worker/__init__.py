"""The worker: telemetry from Kafka to contributions in Redis, and final HATs to releases."""
