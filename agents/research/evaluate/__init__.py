"""`hatcast evaluate`, `hatcast cluster --evaluate`: the papers' comparisons by simulation. Publishes nothing.

Only `agents/cli/evaluate.py` and `agents/cli/cluster.py` import this package, and only `simulation.py` draws random
numbers (tests/unit/test_evaluate_command.py).
"""
