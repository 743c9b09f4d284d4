"""Releases into a ledger file: the protocol of agents/release.py in one process.    [design 3, I1 and I2; 4, Release]

The steps, by the worker's names:

    loaded     the kept chunks of final HATs without a record
    drawn      the estimate, with noise; seen by nobody yet
    committed  record + charge in the file, in one durable step
    printed    the bytes as they stand in the file; a next run prints the same ones
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from agents.batch.fold import Folded
from agents.batch.keep import KeepChunks
from agents.clock import now_ms
from agents.ledger_file import LedgerFile
from stream.hats import Calendar
from stream.mechanisms import Noise
from stream.policy import Policy
from stream.release import release_id, release_of

_HATS: Final = 500  # of one commit: the disk is waited for once


def release_final(
    folded: Folded, kept: KeepChunks, policy: Policy, ledger: LedgerFile, noise: Noise
) -> Iterator[bytes]:
    """The one record of each final HAT, by slot, then cell; each is durable in the ledger before it is given out."""
    calendar = Calendar(policy)
    final = (
        (release_id(policy, hat.slot, hat.cell), hat, chunks)
        for hat, chunks in kept.in_order()
        if folded.is_final(hat.end_ms + policy.lateness_ms)
    )
    while due := list(islice(final, _HATS)):
        records = {name: ledger.find(name) for name, _, _ in due}
        drawn = [
            release_of(policy, calendar, hat.slot, hat.cell, chunks, noise)
            for name, hat, chunks in due
            if records[name] is None
        ]
        records |= ledger.commit(drawn, now_ms())
        yield from (record for record in records.values() if record is not None)
