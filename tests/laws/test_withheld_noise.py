"""Laws of the noise of kind `withhold_release`: each node's is drawn once, and if shifted it hides a user."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatcast.stream.continual import Step
from hatcast.stream.continual import trees as prefixes
from hatcast.stream.continual import withhold_release as kind
from hatcast.stream.continual._digits import Integers
from hatcast.stream.continual._withheld import HorizonUsers, Withheld
from hatcast.stream.continual.withhold_release import WithholdRelease
from hatcast.stream.mechanisms import Distances, NoisyVector
from tests.laws.withheld_streams import BOUND, Slots, Table, arrivals, each_value, entries, read, setting, states, sums
from tests.support import examples


class OfNodes:
    """Gives each node of each stream the number in a table. Streams are asked in order, once in a slot."""

    def __init__(self, mechanism: WithholdRelease, tables: list[dict[int, int]], after: list[Withheld]) -> None:
        self.mechanism, self.tables = mechanism, tables
        self.after = iter(after)
        self.before: list[dict[int, int]] = [{} for _ in tables]
        self.wanted: list[list[int]] = []

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        if not self.wanted:
            cell = next(self.after)
            for number, (stream, each) in enumerate(zip(self.mechanism.streams, cell.streams, strict=True)):
                nodes = stream.digits.nodes(each.before)
                now = {key: self.tables[number][key] for key in nodes.keys.tolist()}
                self.wanted.append([noise for key, noise in now.items() if key not in self.before[number]])
                self.before[number] = now
        noises = np.array(self.wanted.pop(0), np.int64)
        return NoisyVector(values + noises, 0.0)

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        raise AssertionError


def totals(mechanism: WithholdRelease, slots: Slots, noise: OfNodes) -> list[float]:
    state, found = None, []
    for index, values in slots.items():
        (advanced,) = mechanism.advance([Step(state, index, entries(values))], noise)
        state = advanced.state
        found.append(advanced.total)
    return found


def check_that_shifted_noise_hides_a_user(users: list[set[int]], seed: int) -> None:
    """Noises of each stream that are shifted by at most its distance give a neighbour the same outputs."""
    mechanism = WithholdRelease(setting(12, 7))
    rng = np.random.default_rng(seed)
    mine, yours = (
        {
            index: {user: value if user == 0 else 13 * index for user, slots in enumerate(users) if index in slots}
            for index in sorted(set().union(*users))
        }
        for value in (0, BOUND)
    )
    after = states(mechanism, mine, Table(mechanism))
    change = np.zeros((12, len(mechanism.streams)), np.int64)
    change[list(mine)] = sums(after) - sums(states(mechanism, yours, Table(mechanism)))
    tables, shifted = [], []
    for number, (stream, cell) in enumerate(zip(mechanism.streams, after[-1].streams, strict=True)):
        start = max(cell.start, 0)
        length = stream.digits.slots
        keys = np.unique(np.concatenate([stream.digits.nodes(prefix).keys for prefix in range(1, length + 1)]))
        moved = np.zeros(length, np.int64)
        moved[: 12 - start] = change[start:, number][:length]
        levels, places = np.divmod(keys, 1 << 40)
        sizes = np.array([stream.digits.base**level for level in levels.tolist()])
        lasts = np.minimum((places + 1) * sizes, length)
        sums_to = np.concatenate([[0], np.cumsum(moved)])
        shift = sums_to[lasts] - sums_to[np.minimum(places * sizes, length)]
        assert np.abs(shift).sum() <= stream.nodes.distances.l1
        noises = rng.integers(-5000, 5000, len(keys))
        tables.append(dict(zip(keys.tolist(), noises.tolist(), strict=True)))
        shifted.append(dict(zip(keys.tolist(), (noises + shift).tolist(), strict=True)))
    found = totals(mechanism, mine, OfNodes(mechanism, tables, after))
    assert found == totals(mechanism, yours, OfNodes(mechanism, shifted, after))


@settings(deadline=None, max_examples=examples(60))
@given(arrivals.filter(any), st.integers(0, 2**32 - 1))
def test_shifted_noise_hides_a_user(users: list[set[int]], seed: int) -> None:
    check_that_shifted_noise_hides_a_user(users, seed)


def test_values_that_are_not_withheld_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HorizonUsers, "enter", each_value)
    with pytest.raises(AssertionError):
        check_that_shifted_noise_hides_a_user([set(range(7))], 1)


class Numbered:
    """Noise that is another number at each draw."""

    def __init__(self) -> None:
        self.last = 0

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        self.last += len(values)
        return NoisyVector(values + np.arange(self.last - len(values), self.last), 0.0)

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        raise AssertionError


def check_that_noises_are_kept() -> None:
    mechanism, noise = WithholdRelease(setting(40, 20)), Numbered()
    state: bytes | None = None
    earlier: list[dict[int, int]] = [{} for _ in mechanism.streams]
    for index in [0, 1, 2, 5, 6, 7, 8, 9, 11, 12, 13, 18, 19, 20, 30, 39]:
        (advanced,) = mechanism.advance([Step(state, index, entries({5: 10, 6: 20}))], noise)
        state = advanced.state
        cell = read(mechanism, state)
        noises = 0
        for stream, each, known in zip(mechanism.streams, cell.streams, earlier, strict=True):
            nodes = stream.digits.nodes(each.prefix(index))
            noises += int(nodes.signs @ each.noises)
            now = dict(zip(nodes.keys.tolist(), each.noises.tolist(), strict=True))
            assert {key: value for key, value in known.items() if key in now}.items() <= now.items()
            known.update(now)
        assert advanced.total == sum(each.total for each in cell.streams) + noises
    drawn = [value for known in earlier for value in known.values()]
    assert len(set(drawn)) == len(drawn) == noise.last


def test_the_total_is_the_exact_sum_and_the_signed_noises_each_drawn_once() -> None:
    check_that_noises_are_kept()


def test_noises_that_are_drawn_again_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = prefixes.plan
    monkeypatch.setattr(kind, "plan", lambda digits, before, after: honest(digits, 0, after))
    with pytest.raises(AssertionError):
        check_that_noises_are_kept()
