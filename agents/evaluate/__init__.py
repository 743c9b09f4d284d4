"""`hatcast evaluate`: estimators compared as the papers compare them. A simulation: it publishes nothing.

Only `agents/cli/evaluate.py` imports this package; only `simulation.py` draws (tests/unit/test_evaluate_command.py).
"""
