"""Research commands: compare estimators, cluster users, survey recordings. They need `hatcast[research]`."""
