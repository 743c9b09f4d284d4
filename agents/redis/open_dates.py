"""Local dates that have opened: workers of a policy fold a date, those of a domain release it under the same rules.

A worker whose time zone data are older or newer may have other rules for a date: other instants at which it begins and
ends, and other slots. Then a reading would be in two HATs, of one date or of two.    [docs/proofs.md, Local dates]
"""

from collections.abc import Mapping

from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.stream.fold.hats import Calendar


class OpenDates:
    """Compares the rules of a policy's open dates with those of this process. Errors of redis-py pass through.

    A date is open from the checkpoint that stores its first HAT, in any partition, until it is sealed. A date that has
    not opened may change its rules. Before anything of a date is released its rules are pinned for all policies of the
    domain: hatcast.stream.ledger.date_rules.
    """

    def __init__(self, store: HatStore, ledger: LedgerStore, calendar: Calendar) -> None:
        self._store = store
        self._ledger = ledger
        self._calendar = calendar

    async def check(self) -> None:
        """Raise HatcastError if an open date has other rules in a partition than here."""
        registered = await self._store.rules()
        sealed = await self._ledger.sealed_through() if registered else ""
        self._calendar.check_rules(rule for rule in registered if rule[0] > sealed)

    async def open(self, rules: Mapping[str, str]) -> Mapping[str, str]:
        """Return those of a partition's rules that are to be stored with its state, now that a date opens in it.

        Call it before the checkpoint. Raises HatcastError, as `check`, also if another worker is opening a date under
        other rules.
        """
        sealed = await self._ledger.sealed_through()
        unsealed = {date: own for date, own in rules.items() if date > sealed}
        claimed = [(date, await self._store.telemetry.claim(date, own)) for date, own in unsealed.items()]
        self._calendar.check_rules(claimed)
        await self.check()
        await self._ledger.check_rules(unsealed, self._calendar)
        return unsealed

    async def pin(self, date: str) -> None:
        """Pin the rules of a date of which something is about to be drawn. Raises HatcastError, as `check`."""
        await self._ledger.pin_rules(date, self._calendar)
