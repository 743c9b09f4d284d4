"""The ledger of a domain: pure decisions on its rows about what may be charged and what is stored.

A decision says which rows it reads (`Wanted`, named in rows.py), gets them as a `View`, and writes to a `Draft` over
it. It returns what was decided with `RowChanges`: rows to write, and as conditions the rows that it relied on. A store
applies the changes if the conditions still hold, in one script; else it reads again, and the decision is made again.
"""
