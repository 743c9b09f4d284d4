"""Errors: their causes by type and listed code, and reports of unexpected ones without data."""
