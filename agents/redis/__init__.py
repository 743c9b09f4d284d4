"""Redis: the fold state of each partition, and the ledger of the domain.

What is written together, or only if something still holds, is one Lua script. A mark of publication, a claim of a date
and a snapshot of estimates are single commands.

Errors of redis-py pass through: the caller backs off and tries again.
"""
