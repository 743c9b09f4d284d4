"""hatcast: continual private means from a stream of vehicle telemetry."""
