"""Recover the ledger: whatever Redis lost of what was published is adopted from the output topics.    [decisions/0027]

The output topics are the ledger's second home. All publishing goes through transactional producers, so once each of
their ids was taken over, no older worker can add a byte; what is on the topics then, aborted sends included, is all
that ever left.
"""

from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.ledger import LedgerRecovery

__all__ = ["Domain", "LedgerRecovery"]
