"""Stores of a ledger, behind two verbs: read rows of one moment, and apply changes whole or not at all."""
