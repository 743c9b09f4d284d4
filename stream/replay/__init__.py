"""Recorded or synthetic records with heartbeat records between them, in the order in which they arrived."""
