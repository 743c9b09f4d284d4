"""Releases: HAT, contributions, policy and noise to the bytes that are published."""
