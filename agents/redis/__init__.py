"""Redis: the fold state of each partition, and the ledger of the domain. Every write is one Lua script.

Errors of redis-py pass through: the caller backs off and tries again.
"""
