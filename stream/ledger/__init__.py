"""The ledger of a domain: what each local date has cost a bus, and the record of each release.

It is rows of text in a store, such as Redis; rows.py names them. Every change is a *decision*, a function that stores
nothing itself. For example, a commit:

1. `commit_rows` names the rows that it needs (`Wanted`), and a store reads them, all of one moment (`View`).
2. `commit` decides from these rows alone, and returns its result with the changes that carry it out (`RowChanges`).
   They include the conditions under which the result holds, such as that a date has not changed since.
3. The store checks the conditions and writes the changes, in one step. If another process has changed one of these rows
   meanwhile, nothing is written, and all begins again with step 1.

So no two processes spend the same room in a budget, and no lock is held.    [docs/proofs.md, "One ledger"]
"""
