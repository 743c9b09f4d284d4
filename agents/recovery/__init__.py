"""Ledger recovery: restore published records that Redis lost, from the output topics.    [decisions/0004]

The output topics are a second copy of the ledger. All publishing uses transactional producers, so once each
transactional id is fenced, no older worker can append a byte: from then on the topics, including aborted sends, contain
everything that was ever published.
"""
