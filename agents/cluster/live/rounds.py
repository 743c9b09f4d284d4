"""The iterations of a live clustering. A round is stored before it is sent, and its noisy numbers before their use."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from hatcast.agents.clock import now_ms
from hatcast.agents.cluster.live.exchange import AnswerReader
from hatcast.agents.cluster.live.state import ClusteringPlan, ClusteringState, RoundNumbers
from hatcast.agents.config.settings import Settings
from hatcast.stream.errors import HatcastError
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.kmeans import lloyd
from hatcast.stream.kmeans.groups import noisy_tally
from hatcast.stream.kmeans.messages import Round, decode_round, encode, speeds_of
from hatcast.stream.mechanisms import LaplaceNoise
from hatcast.stream.policy.policy import Policy

SEND = Callable[[str, bytes], None]  # sends a record of `hats.clusters` with its key, and waits until Kafka has it


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange with the devices: how rounds are sent, the reader of answers, and how long a round lasts."""

    send: SEND
    reader: AnswerReader
    round_ms: int


class LiveRounds:
    """Rounds of one clustering; a run that follows another one goes on where that one stopped."""

    def __init__(
        self,
        settings: Settings,
        state: ClusteringState,
        central: Integers | None,
        devices: Exchange | None,
        noise: LaplaceNoise,
        check: Callable[[], set[str]],
    ) -> None:
        """Args:
        central:   int64 [n, d], vectors of the trusted users in steps; None without them
        devices:   None without devices
        check:     returns the rounds that were published; raises HatcastError unless the state file has all of them
        """
        self._policy = settings.policy
        self._state = state
        self._chosen = state.plan.chosen
        self._setting = self._chosen.setting(settings.policy)
        self._central = central
        self._devices = devices
        self._noise = noise
        self._check = check
        self._number = 0
        self._note: Callable[[str], object] = lambda _: None

    def run(self, note: Callable[[str], object]) -> lloyd.Clusters:
        """Return the clusters after all rounds. Raises HatcastError if there are too few users.

        note   gets a sentence about what is waited for
        """
        self._note = note
        return lloyd.iterate(self._means_around, self._setting)

    def _means_around(self, centres: Integers) -> lloyd.WeightedMeans:
        self._number += 1
        numbers = self._state.numbers(self._number)
        if numbers is None:
            numbers = self._hold(self._number, centres)
            self._state.end_round(self._number, numbers)
        return self._means(numbers)

    def _hold(self, number: int, centres: Integers) -> RoundNumbers:
        """Return the noisy numbers of a round: the only place where the trusted users' noise is drawn."""
        answered, local_sums, devices = None, None, 0
        if self._devices is not None:
            reader = self._devices.reader
            body, closes_ms = self._begun(number, centres, self._devices.round_ms)
            self._devices.send(f"{self._state.plan.clustering}/{number}", body)
            reader.collect(number, closes_ms, lambda count: self._note(f"round {number}: {count} devices answered"))
            clusters, vectors = reader.answers.of_round(number)
            devices = len(clusters)
            if devices:
                tallied = lloyd.tally_answers(np.array(clusters, np.int64), np.array(vectors, np.int64), self._setting)
                answered, local_sums = tallied[0].tolist(), tallied[1].tolist()
        elif self._state.round(number) is None:
            self._state.begin_round(number, b"", 0)
        central = 0 if self._central is None else len(self._central)
        # Both numbers are public under `replace`. Later rounds may have fewer devices: the noise is there for each.
        if central + devices < (max(self._policy.min_users, 1) if number == 1 else 1):
            raise HatcastError(
                f"{central} trusted users and {devices} devices are fewer than policy.privacy.min_users: nothing is"
                " released"
            )
        counts, sums = None, None
        if self._central is not None and central:
            self._check()
            noisy = noisy_tally(self._central, centres, self._setting, self._noise)
            counts, sums = noisy[0].tolist(), noisy[1].tolist()
        return RoundNumbers(
            counts=counts, sums=sums, answered=answered, local_sums=local_sums, central=central, devices=devices
        )

    def _begun(self, number: int, centres: Integers, round_ms: int) -> tuple[bytes, int]:
        """Return the record of a round as it was sent, or store it now. Devices get the whole time for one not sent."""
        was_sent = str(number) in self._check()
        stored = self._state.round(number)
        named = tuple(speeds_of(centre, self._policy) for centre in centres.tolist())
        begun = None if stored is None else decode_round(stored[0])
        if stored is not None and (begun is None or begun.centres != named):
            raise HatcastError(
                "the state file was written by another version of hatcast, which computes other centres: go on with"
                " that version, or start a new clustering with another --state"
            )
        if stored is not None and was_sent:
            return stored
        closes_ms = now_ms() + round_ms
        body = encode(round_of(self._state.plan, self._policy, number, named, closes_ms))
        self._state.begin_round(number, body, closes_ms)
        return body, closes_ms

    def _means(self, numbers: RoundNumbers) -> lloyd.WeightedMeans:
        central = local = None
        if numbers.counts is not None and numbers.sums is not None:
            counts, sums = np.array(numbers.counts, np.int64), np.array(numbers.sums, np.int64)
            central = lloyd.means_of_tally(counts, sums, self._setting)
        if numbers.answered is not None and numbers.local_sums is not None:
            local = lloyd.means_of_answers(np.array(numbers.answered), np.array(numbers.local_sums), self._setting)
        if central is not None and local is not None:
            return lloyd.blend(central, local)
        if central is not None:
            return central, np.ones(central.means.shape)
        assert local is not None  # noqa: S101 - `_hold` raises without users
        return local, np.zeros(local.means.shape)


def round_of(
    plan: ClusteringPlan, policy: Policy, number: int, centres: tuple[tuple[Decimal, ...], ...], closes_ms: int
) -> Round:
    """Return the record of a round. centres: in the policy's unit, on its grid."""
    chosen = plan.chosen
    return Round(
        clusters_id=f"{plan.clustering}/{number}",
        clustering=plan.clustering,
        policy=policy.name,
        policy_id=policy.policy_id,
        date=chosen.date,
        slots=chosen.slots,
        epsilon=chosen.epsilon,
        iterations=chosen.iterations,
        seed=chosen.seed,
        round=number,
        closes=closes_ms,
        centres=centres,
    )
