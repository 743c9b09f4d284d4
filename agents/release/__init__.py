"""Releases: at slot close, commit each record and its charge in Redis, then publish it to Kafka exactly once."""
