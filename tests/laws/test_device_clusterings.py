"""Law of a device in clusterings: whatever an operator asks, it answers once and loses at most its own epsilon."""

import tempfile
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatcast.agents.device.clusterings import Answering, DeviceClusterings
from hatcast.agents.device.store import open_store
from hatcast.agents.device.stored import StoredMessage, VehicleHat
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans.messages import ClusterAnswer, Round, decode_round, encode
from hatcast.stream.mechanisms import Noisy
from hatcast.stream.units import NANO
from tests.devices import rules_of
from tests.support import ScalarNoise

RULES: Final = rules_of()
DATE, OTHER_DATE = "2022-01-02", "2022-01-03"
TOP: Final = 65_000
OWN_EPSILON: Final = 3


class Metered(ScalarNoise):
    """Noise that adds up what one bus loses through it: exactly, if the bus has any two vectors of the cube."""

    def __init__(self) -> None:
        self.lost = Fraction(0)

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        assert 0 <= value <= TOP
        self.lost += Fraction(epsilon) * TOP / distance  # a coordinate moves by TOP at most
        return Noisy(value + 7, distance / epsilon)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        raise AssertionError("clusterings have Laplace noise")

    def choose(self, weights: Integers, costs: Integers, rate: Fraction) -> int:
        # Randomised response: all weights are 1, and the costs are 0 for one candidate and 1 for all others.
        assert weights.tolist() == [1] * len(weights)
        assert sorted(costs.tolist()) == [0] + [1] * (len(costs) - 1)
        self.lost += rate
        return int(np.argmax(costs))

    def uniform(self, number: int) -> int:
        raise AssertionError("nothing draws integers here")


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    """What an operator may send, honest or not."""
    slots = tuple(draw(st.sampled_from([("12:00",), ("12:00", "13:00"), ("13:00", "12:00"), ("25:00",)])))
    texts = ("0", "20.5", "21.001", "65", "66", "0.00001")
    speeds = st.sampled_from([Decimal(text) for text in texts])
    centres = draw(st.lists(st.tuples(*[speeds] * len(slots)), min_size=1, max_size=3))
    clustering = draw(st.sampled_from("abc")) * 32
    number = draw(st.integers(0, 5))
    return Round(
        clusters_id=f"{clustering}/{number}",
        clustering=clustering,
        policy="devices",
        policy_id=draw(st.sampled_from([RULES.policy.policy_id] * 5 + ["b2:" + "0" * 32])),
        date=draw(st.sampled_from([DATE] * 3 + [OTHER_DATE])),
        slots=slots,
        epsilon=draw(st.sampled_from([1.0, 2.0, 0.1, 11.0, -1.0, float("nan")])),
        iterations=draw(st.sampled_from([1, 2, 3, 1000])),
        seed=draw(st.sampled_from([1, 1, 2])),
        round=number,
        closes=draw(st.integers(0, 2**53)),
        centres=tuple(centres),
    )


def check(asked: Sequence[Round], kind: Any = Answering) -> int:
    """Ask one bus, which restarts before each round; return its number of different answers."""
    noise, answers = Metered(), dict[tuple[str, int], bytes]()
    with tempfile.TemporaryDirectory() as folder:
        for round_ in asked:
            with open_store(Path(folder) / "device.db") as store:
                with store.transaction():
                    for slot, total in (("12:00", 20_000), ("13:00", 130_000)):
                        store.answers.add_sums(VehicleHat("bus", DATE, slot, "8"), 2, total)
                for stored in kind(RULES, store, noise, OWN_EPSILON * NANO).draw(round_, 1):
                    key = round_.clustering, round_.round
                    assert answers.setdefault(key, stored.body) == stored.body, "another answer to the same round"
    assert noise.lost <= OWN_EPSILON, "more than its own epsilon"
    decoded = [msgspec.json.decode(body, type=ClusterAnswer) for body in answers.values()]
    for clustering in {answer.clustering for answer in decoded}:
        mine = [answer for answer in decoded if answer.clustering == clustering]
        assert sum(answer.vector is not None for answer in mine) == 1, "its vector more than once"
        assert len({answer.id for answer in mine}) == 1
    assert len({answer.id for answer in decoded}) == len({answer.clustering for answer in decoded})
    return len(answers)


@settings(deadline=None, max_examples=60)
@given(st.lists(rounds(), max_size=12))
def test_whatever_an_operator_asks_a_device_loses_no_more_than_its_own_epsilon(asked: list[Round]) -> None:
    check(asked)


HONEST: Final = Round(
    clusters_id=f"{'a' * 32}/1",
    clustering="a" * 32,
    policy="devices",
    policy_id=RULES.policy.policy_id,
    date=DATE,
    slots=("12:00", "13:00"),
    epsilon=2.0,
    iterations=3,
    seed=1,
    round=1,
    closes=2**40,
    centres=((Decimal("20.5"), Decimal(1)), (Decimal(40), Decimal(60))),
)


def changed(**changes: Any) -> Round:
    return msgspec.structs.replace(HONEST, **changes)


def test_an_honest_operator_gets_an_answer_to_each_round_and_a_device_all_of_its_epsilon() -> None:
    assert check([changed(round=number) for number in (1, 2, 2, 3)]) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        changed(round=2, epsilon=1.0),
        changed(round=2, slots=("12:00",), centres=((Decimal(1),), (Decimal(2),))),
        changed(round=2, centres=HONEST.centres * 2),
        changed(round=2, seed=2),
        changed(round=4),
        changed(round=2, policy_id="b2:" + "0" * 32),
        changed(round=2, iterations=2),
        changed(clustering="b" * 32),
        changed(clustering="c" * 32, date=OTHER_DATE),
    ],
)
def test_other_parameters_more_rounds_and_clusterings_beyond_the_budget_get_nothing(wrong: Round) -> None:
    assert check([HONEST, wrong]) == 1


@pytest.mark.parametrize(("reports", "answers"), [(103, 1), (104, 0)])
def test_a_clustering_that_the_days_reports_leave_no_room_for_gets_nothing(reports: int, answers: int) -> None:
    """A day has 105: a clustering costs 2, within the device's own epsilon for clusterings."""
    noise = Metered()
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "device.db") as store:
        with store.transaction():
            for number in range(reports):
                store.add(
                    VehicleHat("bus", DATE, "12:00", f"{number:x}"), NANO, StoredMessage(0, "id", b"report", 0, 0)
                )
            store.answers.add_sums(VehicleHat("bus", DATE, "12:00", "8"), 2, 20_000)
        assert len(Answering(RULES, store, noise, OWN_EPSILON * NANO).draw(HONEST, 1)) == answers
    assert reports + noise.lost <= RULES.limit_nano / NANO


class Rounds:
    """Records of `hats.clusters`, and what the device sends."""

    def __init__(self, *records: bytes) -> None:
        self._records = records
        self.sent: list[bytes] = []

    def take(self, _: float) -> list[Round]:
        records, self._records = self._records, ()
        return [round_ for each in records if (round_ := decode_round(each)) is not None]

    def send(self, answers: Sequence[Any]) -> None:
        self.sent += [stored.body for stored in answers]

    def poll(self) -> None:
        """Nothing is acknowledged."""


def hostile(**changes: Any) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(encode(HONEST)) | changes)


HOSTILE: Final = [
    b"",
    b"[" * 100_000,
    encode(HONEST).replace(b'"round":1', b'"round":1' + b"0" * 40),
    encode(HONEST).replace(b'"seed":1', b'"seed":1' + b"0" * 40),
    encode(HONEST).replace(b"20.5", b"1E-999999999"),
    *(hostile(round=number) for number in (0, -1, 101, 2**63)),
    *(hostile(iterations=number) for number in (0, 2**63)),
    *(hostile(date=date) for date in ("2022-02-30", "0000-00-00", "9999-12-31")),
    hostile(slots=[], centres=[]),
    hostile(slots=["12:00", "12:00"]),
    hostile(centres=[["NaN", "Infinity"]]),
    hostile(epsilon=5e-324),
    hostile(closes=2**53, centres=[[1, 2], [1]]),
]


def polled(*records: bytes, ended: bool) -> tuple[list[bytes], int]:
    """A device that reads these rounds: the answers that it sends, and how many rounds it still stores."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "device.db") as store:
        with store.transaction():
            store.answers.add_sums(VehicleHat("bus", DATE, "12:00", "8"), 2, 20_000)
        rounds: Any = Rounds(*records)
        answering = Answering(RULES, store, Metered(), OWN_EPSILON * NANO)
        clusterings = DeviceClusterings(answering, rounds, rounds, lambda: 1)
        clusterings.poll(ended=ended)
        return rounds.sent, len(clusterings._open)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("record", HOSTILE)
def test_a_hostile_record_stops_no_device_and_is_not_stored(record: bytes, *, ended: bool) -> None:
    assert polled(record, ended=ended) == ([], 0)
    assert len(polled(record, encode(HONEST), ended=True)[0]) == 1, "the next round is answered"


def test_rounds_that_wait_for_their_day_do_not_fill_the_memory() -> None:
    waiting = [hostile(clustering=f"{number:032x}", date="2999-01-02") for number in range(1000)]
    assert polled(*waiting, ended=False) == ([], 100)


class NeverStored(Answering):
    """The mutant: an answer is not found again."""

    def draw(self, round_: Round, at_ms: int) -> Any:
        with self._store.transaction():
            self._store._sql.execute("DELETE FROM answers")
        return super().draw(round_, at_ms)


class Uncounted(Answering):
    """The mutant: no clustering is counted."""

    def _fits(self, vehicle: str, date: str, cost_nano: int) -> bool:
        return True


def test_mutants_break_the_law() -> None:
    other = changed(centres=HONEST.centres[::-1])
    with pytest.raises(AssertionError, match=r"another answer|own epsilon"):
        check([HONEST, other, changed(round=2), changed(round=3), HONEST], NeverStored)
    with pytest.raises(AssertionError, match="own epsilon"):
        check([changed(clustering=name * 32, round=number) for name in "ab" for number in (1, 2, 3)], Uncounted)
