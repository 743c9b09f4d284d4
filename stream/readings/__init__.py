"""Readings: one record of one vehicle, decoded from any telemetry format, with its user as a pseudonym."""
