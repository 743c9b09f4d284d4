"""The shell of hatcast: everything that talks to Kafka, Redis, the clock and people. The computation is in `stream`."""
