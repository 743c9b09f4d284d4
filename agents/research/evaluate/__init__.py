"""`hatcast evaluate`, `hatcast cluster --evaluate`: compared as the papers compare. A simulation: publishes nothing.

Only `agents/cli/evaluate.py` and `agents/cli/cluster.py` import this package; only `simulation.py` draws
(tests/unit/test_evaluate_command.py).
"""
