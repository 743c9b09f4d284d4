"""Releases: at slot close, commit each record and its charge in Redis, then publish it to Kafka exactly once.

estimates.py publishes what follows from the releases alone: estimates and running means, without a charge.
"""
