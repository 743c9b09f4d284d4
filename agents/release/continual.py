"""Releases of running sums: slot after slot, each cell by the owner of its release partition.

The steps are those of every release:

    loaded     the HATs' contributions
    drawn      all running sums of a batch, in one call, from the states of their cells as stored
    committed  record, state and reservation, in one step; only if the state before is still the stored one
    marked     the record is published; the state before it is dropped

A slot begins once the one before is published, so of each cell at most one release is unsent. What was drawn and not
committed has not left the process.    [docs/specification/release.md, Running sums]
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import structlog

from hatcast.agents.release.hats import DueHat, Hats
from hatcast.agents.release.kind import DuePart, ReleaseContext
from hatcast.stream.fold.calendar import later
from hatcast.stream.ledger.commits import AnyProposal
from hatcast.stream.ledger.sums import StoredStates
from hatcast.stream.release.continual import RunningSums
from hatcast.stream.release.hats import HatChunks

log = structlog.get_logger()

_UNUSABLE: Final = "a stored state of a running sum cannot be used"


class ContinualHats:
    """The running sums of a policy, and their kind."""

    def __init__(self, context: ReleaseContext, hats: Hats) -> None:
        self._context = context
        self._hats = hats
        self.final_slots = hats.final_slots
        self._horizons = context.ledger.horizons
        self._sums = RunningSums(context.policy)
        self._dropped_through = ""  # sealed date at the last look for finished horizons
        self._warned = ""  # horizon that is known to be closed
        self.kind = replace(
            hats.kind, order="together", due=self.due, draw=self.draw, after_mark=self.drop_states_before
        )

    async def due(self, owned: frozenset[int]) -> AsyncGenerator[DuePart[DueHat]]:
        """Yield the final HATs of release partitions, slot after slot."""
        for _, of_slot in groupby(await self._hats.due_now(owned), lambda due: due.hat.slot):
            yield DuePart([*of_slot])
        await self._drop_finished()

    async def draw(self, batch: Sequence[DueHat], loaded: Sequence[HatChunks]) -> Mapping[DueHat, AnyProposal]:
        """Draw the running sums of a slot, in a thread. A closed horizon has none."""
        sums = self._sums
        slot = sums.slot(batch[0].hat.slot)
        horizon = sums.horizon(slot.date)
        stored = await self.read_states(horizon.first, batch)
        lost = await self._hats.has_lost(horizon.first)
        hats = [(due.cell, chunks) for due, chunks in zip(batch, loaded, strict=True)]
        noise = self._context.noise
        releases = await asyncio.to_thread(sums.draw, slot, hats, stored, noise, lost=lost)
        closes = releases[0].closes
        if closes is not None and self._warned != horizon.first:
            self._warned = horizon.first
            if stored.closed is None and not lost:
                log.warning(_UNUSABLE, horizon=horizon.first)
            log.warning("no more running sums of this horizon", status=closes.value, horizon=horizon.first)
        return self._context.proposals(batch, releases)

    async def drop_states_before(self, batch: Sequence[DueHat]) -> None:
        """Drop the states before releases of a slot that are marked as published."""
        await self._hats.observe(batch)
        await self._horizons.settle(self._sums.horizon(batch[0].date).first, [due.cell for due in batch])

    async def read_states(self, horizon: str, batch: Sequence[DueHat]) -> StoredStates:
        """Read the states of the cells of a batch (step loaded). Tests wrap it."""
        with self._context.failures.attempt("read the states of running sums"):
            return await self._horizons.read(horizon, [due.cell for due in batch])

    async def _drop_finished(self) -> None:
        """Delete the states of horizons of which every day is sealed."""
        sealed = self._context.recovery.sealed_through
        if self._dropped_through == sealed:
            return
        end_date = await self._context.ledger.end_date()
        for name in await self._horizons.known():
            if self._sums.horizon(name).last <= sealed or end_date <= later(sealed, 1):
                await self._horizons.drop(name)
                log.info("horizon finished", horizon=name)
        self._dropped_through = sealed
