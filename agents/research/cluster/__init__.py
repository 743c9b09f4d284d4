"""`hatcast cluster`: recordings to vectors, vectors to private centres. One process, no services, no ledger."""
