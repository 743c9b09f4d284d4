"""From rounds of a clustering to stored answers.    [docs/proofs.md, "Clusterings with devices"]"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hatcast.agents.device.fold import Rules
from hatcast.agents.device.store import Store
from hatcast.agents.device.stored import Stored
from hatcast.stream.kmeans.devices import noisy_vector, randomised_cluster
from hatcast.stream.kmeans.hat_vectors import hat_vectors
from hatcast.stream.kmeans.messages import Answer, Request, Round, accepted, encode, speeds_of
from hatcast.stream.kmeans.tally import nearest
from hatcast.stream.mechanisms import Noise
from hatcast.stream.units import nano_ceil

_USER = np.zeros(1, np.uint64)  # one vehicle at a time needs no pseudonym


@dataclass(slots=True)
class AnswerTally:
    """Number of rounds, one for each vehicle, by result.

    answered   answer drawn and stored now
    repeated   answered before: the stored bytes are sent again
    rejected   other parameters than the policy's or the first round's, or no budget left
    """

    answered: int = 0
    repeated: int = 0
    rejected: int = 0


class Answering:
    """Answers rounds for one device, or for a fleet."""

    def __init__(self, rules: Rules, store: Store, noise: Noise, epsilon_nano: int) -> None:
        """Args: `epsilon_nano`, the most that all clusterings of one local date may cost a vehicle, in 1e-9."""
        self.tally = AnswerTally()
        self._rules = rules
        self._store = store
        self._noise = noise
        self._epsilon_nano = epsilon_nano

    def final_ms(self, round_: Round) -> int | None:
        """Return the time (ms UTC) from which the operator rejects readings of the round's slots; None if unknown."""
        calendar = self._rules.calendar
        slots = [calendar.slot_named(round_.date, name) for name in round_.slots]
        found = [self._rules.closes_ms(slot) for slot in slots if slot is not None]
        return max(found, default=None)

    def may_answer(self, round_: Round) -> bool:
        """Return whether the policy allows a round; count it as rejected if not."""
        allowed = accepted(round_, self._rules.policy) is not None and self.final_ms(round_) is not None
        self.tally.rejected += not allowed
        return allowed

    def draw(self, round_: Round, at_ms: int) -> list[Stored]:
        """Return the answers of all vehicles with readings on the round's date, stored and durable.

        A round that a vehicle has answered gets the stored bytes, whatever it says now. at_ms: wall clock, ms UTC.
        """
        request = accepted(round_, self._rules.policy)
        store = self._store.answers
        if self._store.is_forgotten(round_.date):
            return []
        found = []
        with self._store.transaction():
            sums = store.sums(round_.date)
            for vehicle, rows in sums.items():
                stored = store.find(vehicle, round_.clustering, round_.round)
                if stored is not None:
                    self.tally.repeated += 1
                else:
                    stored = None if request is None else self._draw(vehicle, rows, request, at_ms)
                if stored is None:
                    self.tally.rejected += 1
                else:
                    found.append(stored)
        return found

    def _draw(self, vehicle: str, rows: list[tuple[str, int, int]], request: Request, at_ms: int) -> Stored | None:
        round_, setting = request.round, request.setting
        store, parameters = self._store.answers, round_.parameters
        joined, first = store.joined(vehicle, round_.clustering), False
        if joined is None:
            cost = nano_ceil(round_.epsilon)
            if not self._fits(vehicle, round_.date, cost):
                return None
            joined, first = store.join(vehicle, round_.clustering, round_.date, parameters, cost), True
        if joined.parameters != parameters:
            return None
        _, vectors = hat_vectors(_contributions(rows), round_.slots, self._rules.policy)
        true_cluster = int(nearest(vectors, request.centres)[0])
        vector = noisy_vector(vectors[0].tolist(), setting, self._noise) if first else None
        answer = Answer(
            clustering=round_.clustering,
            round=round_.round,
            id=joined.id,
            cluster=randomised_cluster(true_cluster, setting, self._noise),
            vector=None if vector is None else speeds_of(vector, self._rules.policy),
        )
        self.tally.answered += 1
        new = Stored(0, joined.id, encode(answer), at_ms, round_.closes)
        return store.add((vehicle, round_.clustering, round_.round), round_.date, new)

    def _fits(self, vehicle: str, date: str, cost_nano: int) -> bool:
        """Return whether a clustering fits the device's own epsilon, and the day's limit beside its reports."""
        _, spent = self._store.spent(vehicle, date)
        clusterings = self._store.answers.spent(vehicle, date)
        return clusterings + cost_nano <= self._epsilon_nano and spent + cost_nano <= self._rules.limit_nano


def _contributions(
    rows: list[tuple[str, int, int]],
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    for slot, count, total in rows:
        yield slot, _USER, np.array([count], np.int64), np.array([total], np.int64)
