"""Benchmarks on real services: `scripts/bench NAME [--json]`. What each shows, and its limits: docs/benchmarks.md."""
