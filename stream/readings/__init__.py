"""Readings: decoding of telemetry formats, pseudonyms of users, recordings, partitioners."""
