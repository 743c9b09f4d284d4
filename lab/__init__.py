"""The laboratory: evaluate estimators, plan, survey recordings, audit releases. It needs `hatcast[research]`.

It stands beside the product: it imports `hatcast.agents` and `hatcast.stream`, and they load it by
`agents/laboratory.py` only.
"""
