"""Benchmarks on real services: `scripts/bench NAME [--json]`. bench/README.md explains each and its limits."""
