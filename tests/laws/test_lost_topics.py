"""Laws of recoveries where the topic was lost too: what was sent, and not marked as published, keeps its value."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from hatcast.agents.ledger.store import at_once
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import Position
from hatcast.stream.ledger.rejections import AlreadyAdopted, RecoveryEnded
from hatcast.stream.ledger.view import RowChanges
from hatcast.stream.units import NANO
from tests.laws.test_ledger_decisions import DATES
from tests.laws.test_ledger_recoveries import NAME, PLACE, STEPS, WORKERS, Recoveries, parsed


class Losses(Recoveries):
    """Workers that send what they commit, die before they mark it, and lose the topic, also amid a recovery.

    The store goes back within one recovery only: else it would lose what was sent, with the topic.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, bytes] = {}  # whatever a reader of the topics may have
        at_once(self.store.apply(RowChanges(set={rows.ADOPTED: {PLACE.field: Position("", 0).stored.encode()}})))

    @precondition(lambda self: self.row(rows.RECOVERY, "token") is not None)
    @rule()
    def send(self) -> None:
        """Send what the ledger has and no mark says to be sent: what was kept, too."""
        key = rows.releases(DATES[0], NAME)
        here = at_once(self.store.read({key: None})).whole(key)
        for record in map(parsed, here.values()):
            assert self.sent.setdefault(record.release_id, record.record) == record.record, "a second value"
            self.topic.append(record)

    @rule()
    def lose(self) -> None:
        self.topic, self.topic_id = [], f"{self.topic_id}+"

    @rule(worker=st.sampled_from(WORKERS), steps=st.integers(1, 12))
    def go_on(self, worker: int, steps: int) -> None:
        """A worker does several steps of its recovery with nothing between."""
        own = self.workers[worker]
        for _ in range(steps):
            if own.attempt and own.pending is None:
                try:
                    own.pending = self._next(own, 3)
                except (RecoveryEnded, AlreadyAdopted):
                    own.attempt = ""
            if own.pending is not None:
                self._apply(own)

    @rule()
    def copy(self) -> None:
        """Amid a recovery: nothing is committed that a copy could lack."""
        if self.row(rows.RECOVERY, "attempt") is not None:
            self.copies.append(self.store.rows)

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        copy = self.copies[data.draw(st.integers(0, len(self.copies) - 1))]
        if copy[rows.RECOVERY]["attempt"] == self.row(rows.RECOVERY, "attempt"):
            self.store.restore(copy)

    send_from_elsewhere = None  # type: ignore[assignment]  # no rule here: a second fault

    def is_whole(self) -> None:
        """What may have been read is there as it was sent; the rest of the ledger was kept, and will be sent."""
        key = rows.releases(DATES[0], NAME)
        here = at_once(self.store.read({key: None})).whole(key)
        assert self.sent.items() <= here.items()
        assert not self.unsent()


def test_what_was_sent_and_not_marked_keeps_its_value_wherever_its_topic_is_lost() -> None:
    run_state_machine_as_test(Losses, settings=settings(STEPS, max_examples=150))


@pytest.mark.parametrize("steps", [1, 2])
def test_a_copy_from_before_what_was_kept_ends_the_recovery_that_relies_on_it(steps: int) -> None:
    of = Losses()
    of.commit("a", NANO)
    of.send()
    of.lose()
    of.begin(replace=False, worker=0)
    of.begin(replace=False, worker=1)
    copy, (own, joining) = of.store.rows, of.workers
    while own.check is None:
        of.go_on(0, 1)
    of.go_on(0, steps - 1)  # it is kept; the position is replaced; the other one finds no sign
    of.go_on(1, 0 if steps == 1 else 1)
    of.store.restore(copy)
    for worker in WORKERS:
        of.go_on(worker, 1)
    assert own.attempt == ""
    assert (joining.attempt == "") == (steps > 1), "else it finds the sign, and keeps"
    assert of.store.rows.get(rows.releases(DATES[0], NAME)) == copy[rows.releases(DATES[0], NAME)]


def test_a_copy_that_comes_back_before_all_is_kept_does_not_count_as_kept() -> None:
    of = Losses()
    of.commit("a", NANO)
    of.send()
    of.lose()
    of.begin(replace=False, worker=0)
    copy, own = of.store.rows, of.workers[0]
    of.go_on(0, 1)
    assert not of.unsent()
    own.pending = of._next(own, 1)
    of.store.restore(copy)
    of._apply(own)
    assert of.row(rows.RECOVERY, "kept") is None
    of.go_on(0, 12)
    assert of.sent.items() <= of.store.rows[rows.releases(DATES[0], NAME)].items()
