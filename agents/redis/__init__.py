"""Redis: what a partition has folded, and what has been released and charged. Every write is one Lua script."""
