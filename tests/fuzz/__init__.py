"""Hostile input: targets that take any bytes, and a coverage-guided search for bytes that break their property.

A target either returns a valid value or raises its documented error, within limits of time and memory. `scripts/fuzz`
runs the search; the engine is atheris, Python's libFuzzer.
"""
