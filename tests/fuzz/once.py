"""Try the seeds of every target, and some inputs made of them, in one process without the search."""

import random
import sys
from itertools import islice

from tests.fuzz.catalogue import load_targets
from tests.fuzz.mutations import damaged
from tests.fuzz.target import check_limits
from tests.services import open_redis


def main(made: int, part: int, parts: int) -> None:
    """Raise what an input breaks; print how many inputs there were.

    made          inputs of each target, besides its seeds
    part, parts   of the targets, from 0: every one of so many
    """
    random_numbers, inputs = random.Random(1), 0  # simulation
    with open_redis() as redis:
        for target in islice(load_targets(redis.url), part, None, parts):
            seeds = [seed[: target.max_bytes] for seed in target.seeds()]
            others = [damaged(random_numbers.choice(seeds), target.max_bytes, random_numbers) for _ in range(made)]
            for data in (*seeds, *others):
                try:
                    check_limits(target.run, data)
                except BaseException as error:
                    error.add_note(f"target {target.name}, input {data!r}")
                    raise
                inputs += 1
    sys.stdout.write(f"{inputs} inputs\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
