"""Benchmarks on real services: `scripts/bench NAME [--json]`. docs/benchmarks.md explains each and its limits."""
