"""`hatcast batch`: the same fold over files, and releases into a ledger file; one process, no services."""
