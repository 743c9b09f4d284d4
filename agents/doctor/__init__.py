"""Checks of `hatcast doctor`, before a start: configuration, topics, registry and Redis, or one telemetry topic."""
