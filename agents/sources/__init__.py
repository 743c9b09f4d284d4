"""Bridges: what brings telemetry to Kafka. A recording or a synthetic city here; live feeds come beside them."""
