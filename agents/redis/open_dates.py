"""Local dates that have opened: workers of a policy fold a date, those of a domain release it under the same rules.

A worker whose time zone data are older or newer may have other rules for a date: other instants at which it begins and
ends, and other slots. Then a reading would be in two HATs, of one date or of two.    [docs/proofs.md, Local dates]
"""

from collections.abc import Iterable, Mapping
from datetime import date as local_date
from datetime import timedelta
from typing import Final

from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.stream.fold.hats import Calendar

_BESIDE: Final = (timedelta(days=-1), timedelta(), timedelta(days=1))


class OpenDates:
    """Compares the rules of a policy's open dates with those of this process. Errors of redis-py pass through.

    A date is open from the checkpoint that stores its first HAT, in any partition, until it is sealed. A date that has
    not opened may change its rules. Before anything of a date is released its rules are pinned for all policies of the
    domain: a reading may be on the date beside it under other rules, so three dates are compared.
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
        await self._check_pinned(unsealed, sealed)
        return unsealed

    async def pin(self, date: str) -> None:
        """Pin the rules of a date of which something is about to be drawn. Raises HatcastError, as `check`.

        It pins before it compares: of two policies that do so at once, one finds what the other has pinned.
        """
        await self._ledger.pin_rules(date, self._calendar.rules_of(date))
        await self._check_pinned([date], await self._ledger.sealed_through())

    async def _check_pinned(self, dates: Iterable[str], sealed: str) -> None:
        beside = {(local_date.fromisoformat(each) + days).isoformat() for each in dates for days in _BESIDE}
        if unsealed := sorted(each for each in beside if each > sealed):
            self._calendar.check_rules(await self._ledger.pinned_rules(unsealed))
