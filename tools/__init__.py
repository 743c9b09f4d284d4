"""Generators of reference pages and schemas. Not part of the wheel."""
