"""Errors: the cause of a failed operation, and reports of unexpected errors without their texts."""
