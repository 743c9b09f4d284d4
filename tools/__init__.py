"""Generators of the reference pages and schemas. Not part of the wheel."""
