"""The laboratory: evaluate estimators, plan, survey recordings, audit releases. It needs `hatcast[research]`.

It stands beside the product: it imports `hatcast.agents` and `hatcast.stream`, and they load it by `laboratory` of
`agents/cli/__init__.py` only.
"""
