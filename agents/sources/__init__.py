"""Sources: clients and producers that send telemetry to Kafka from live feeds, recordings or a synthetic city."""
