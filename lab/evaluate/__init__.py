"""`hatcast evaluate`, `hatcast evaluate clusters`: the papers' comparisons by simulation. Publishes nothing.

Only `hatcast evaluate` imports this package, and only `simulation.py` draws random numbers with a
seed (tests/unit/test_evaluate_command.py). `days` draws the noise of releases.
"""
