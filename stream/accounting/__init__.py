"""Ledger arithmetic: the charge of a day of releases, and its composition to (epsilon, delta)."""
