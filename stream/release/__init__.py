"""Releases: from HAT, contributions, policy and noise to the published bytes."""
