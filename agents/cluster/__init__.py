"""`hatcast cluster`: private cluster centres of users' vectors, from recordings. No services, no ledger."""
