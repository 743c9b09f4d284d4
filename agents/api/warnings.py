"""Warnings of the Python API."""


class HatcastWarning(UserWarning):
    """A line for the caller about readings or charges. Under `replace` it may contain public counts."""
