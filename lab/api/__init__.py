"""`hatcast.plan` and `hatcast.plan_continual` of the Python API."""
