"""`hatcast batch`: the same fold over files, with releases into a ledger file, in one process without services."""
