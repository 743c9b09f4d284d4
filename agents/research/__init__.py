"""Research commands: compare estimators, cluster users, survey recordings. Installed with `hatcast[research]`."""
