"""Private cluster centres of users' vectors: release.py from recordings, live/ in rounds with devices.

Only live/ needs services, and charges a ledger.
"""
