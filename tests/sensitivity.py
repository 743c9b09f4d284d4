"""Search for neighbours that an estimator's value moves further apart than its sensitivity says.

.venv/bin/python -m tests.sensitivity --pairs 880000

Random HATs, and small changes of the worst so far, for each estimator, grouping, rule and interval. The share of the
sensitivity that is used is an exact fraction: 1 is reached, more is a broken promise. scripts/nightly runs it.
"""

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import click

from hatcast.stream.estimators import ESTIMATORS, Estimator, Parameters
from hatcast.stream.estimators.grouping import GROUPINGS
from hatcast.stream.policy.policy import Relation
from tests.support import UPPER_BOUND, as_users, plain_parameters, selects

_LENGTHS: Final = ("sensitivity", "median", 1, 7, 50)
_AFRESH: Final = 0.3  # of the pairs: random; the others are a small change of the worst so far
_MOST_USERS: Final = 12


@dataclass(frozen=True, slots=True)
class Pair:
    """A HAT and its neighbour: readings and mean (as a share of the range) of each user, and another mean of one."""

    users: tuple[tuple[int, Fraction], ...]
    user: int
    other: Fraction


def settings() -> Iterator[tuple[str, Estimator, Parameters]]:
    """Yield a name, an estimator and parameters, for each choice that the estimators under `replace` have."""
    for estimator in ESTIMATORS.values():
        if Relation.REPLACE not in estimator.keys.relations:
            continue
        seen = set()
        for grouping in sorted(GROUPINGS):
            for length in _LENGTHS:
                plain = plain_parameters(estimator, grouping, length)
                narrow = replace(plain, interval=(Fraction(UPPER_BOUND, 4), Fraction(UPPER_BOUND, 2)))
                for parameters in (plain, narrow) if selects(estimator) else (plain,):
                    key = (parameters.grouping, parameters.array_length, parameters.interval)
                    if key not in seen:
                        seen.add(key)
                        yield f"{estimator.name} {key}", estimator, parameters


def climb(estimator: Estimator, parameters: Parameters, pairs: int, chance: random.Random) -> Fraction:
    """Return the largest part of the sensitivity that is used. It stops above 1."""
    worst, best = Fraction(0), _random_pair(chance)
    for _ in range(pairs):
        pair = _random_pair(chance) if chance.random() < _AFRESH else _changed(best, chance)
        share = _share(pair, estimator, parameters)
        if share >= worst:
            worst, best = share, pair
        if worst > 1:
            break
    return worst


def _share(pair: Pair, estimator: Estimator, parameters: Parameters) -> Fraction:
    users = sorted(enumerate(pair.users), key=lambda each: -each[1][0])
    counts = [count for _, (count, _) in users]
    sums = [int(share * count * UPPER_BOUND) for _, (count, share) in users]
    place = next(at for at, (number, _) in enumerate(users) if number == pair.user)
    others = [*sums]
    others[place] = int(pair.other * counts[place] * UPPER_BOUND)
    one, other = (estimator.value(as_users(counts, each), parameters) for each in (sums, others))
    sensitivity = estimator.sensitivity(as_users(counts, sums).counts, parameters)
    if not sensitivity:
        return Fraction(0 if one == other else 2)
    return abs(one - other) / sensitivity


def _random_pair(chance: random.Random) -> Pair:
    most = chance.choice((2, 8, 500))
    users = tuple((chance.randint(1, most), _mean(chance)) for _ in range(chance.randint(1, _MOST_USERS)))
    return Pair(users, chance.randrange(len(users)), _mean(chance))


def _changed(pair: Pair, chance: random.Random) -> Pair:
    at, users = chance.randrange(len(pair.users)), [*pair.users]
    way = chance.random()
    if way < 0.2:
        return replace(pair, user=at)
    if way < 0.4:
        return replace(pair, other=_mean(chance))
    count, mean = users[at]
    users[at] = (max(1, count + chance.randint(-2, 2)), mean) if way < 0.7 else (count, _mean(chance))
    return replace(pair, users=tuple(users))


def _mean(chance: random.Random) -> Fraction:
    return chance.choice((Fraction(0), Fraction(1), Fraction(chance.randrange(1001), 1000)))


@click.command()
@click.option("--pairs", default=880_000, show_default=True, help="Of all estimators together.")
@click.option("--seed", type=int, help="Of the search; default: another one each time.")
def command(pairs: int, seed: int | None) -> None:
    """Search for neighbours beyond an estimator's sensitivity; exit code 1 if there are some."""
    every, chance = [*settings()], random.Random(seed)
    of_each, worst = -(-pairs // len(every)), Fraction(0)
    for name, estimator, parameters in every:
        share = climb(estimator, parameters, of_each, chance)
        worst = max(worst, share)
        click.echo(f"{float(share):.6f}  {name}")
    click.echo(f"{of_each * len(every):,} pairs: at most {float(worst):.6f} of the sensitivity")
    sys.exit(1 if worst > 1 else 0)


if __name__ == "__main__":
    command()
