"""A daily limit given as (epsilon, delta): never more releases than what the very noise composes to, and refused else.

Exact figures are those of tests/unit/test_composition.py: plain convolutions of the losses of the noise that the code
asks for.
"""

import copy
import json
import math
import re
import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.agents.cli.budget_explained import explanation, figures
from hatcast.agents.config.settings import policy_of_table
from hatcast.stream.accounting import ChargeSplit, KnownCharges, composed_epsilon
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.estimators import ESTIMATORS, Parameters
from hatcast.stream.estimators._interface import OneDraw
from hatcast.stream.ledger.day import DayLedger, Total
from hatcast.stream.mechanisms.laplace import smallest_scale
from hatcast.stream.policy.composed_limit import check_alone
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.spending import fineness_of
from tests.support import Scripted, as_users
from tests.unit.test_composition import Losses, exact_epsilon, pure_losses

EPSILON, LIMIT, DELTA, CAP = 0.6, 20.0, 1e-6, 80
CELL = "87608b0d2ffffff"
TABLE: dict[str, Any] = {
    "name": "composed",
    "upper_bound": 65.0,
    "grid": 0.01,
    "timezone": "Asia/Kolkata",
    "privacy": {"epsilon": EPSILON, "max_hats_per_day": CAP, "daily_limit": [LIMIT, DELTA]},
    "estimator": {"name": "array_averaging"},
}
FOR_TRUSTED = ["array_averaging", "baseline", "clipped_sum", "levy", "opt_array_averaging", "quantile", "weighted_mean"]


def policy(**changes: Any) -> Policy:
    """The table with changes by dotted key, `privacy__epsilon=2.0`."""
    table = copy.deepcopy(TABLE)
    for key, value in changes.items():
        *outer, last = key.split("__")
        (table[outer[0]] if outer else table)[last] = value
    return policy_of_table(table, "jsonl", lambda name: f'source = "public"\n{CELL}\n')


def of(name: str, **changes: Any) -> Policy:
    return policy(estimator={"name": name}, **changes)


def limit_of(made: Policy) -> Any:
    assert made.composed_limit is not None
    return made.composed_limit


def noise_losses(move: int, scale: float) -> tuple[Losses, float]:
    """Chances of the losses of discrete Laplace noise for a move by `move` steps, [2 move + 1], and their step."""
    p = math.exp(-1 / scale)
    chances = np.zeros(2 * move + 1)
    chances[-1] = 1 / (1 + p)
    chances[2 * (move - np.arange(1, move))] = (1 - p) / (1 + p) * p ** np.arange(1, move)
    chances[0] = p**move / (1 + p)
    return chances, 1 / scale


def widths(parameters: Parameters) -> Iterator[tuple[int, int]]:
    """For any number of users of one reading each: (how far one moves the mean, distance that the noise is made for).

    One number of users for each different move of up to 60 steps. More steps are closer to continuous noise.
    """
    upper = int(parameters.upper_bound_milli / parameters.grid.milli)
    estimator = ESTIMATORS["array_averaging"]
    assert isinstance(estimator, OneDraw)
    for users in sorted({upper // move + 1 for move in range(1, 61)}):
        hat = as_users([1] * users, [0] * users)
        moved = parameters.grid.distance(estimator.sensitivity(hat.counts, parameters))
        yield moved, estimator.before_noise(hat, parameters).distance


def worst(parameters: Parameters, releases: int) -> float:
    """The exact epsilon at DELTA of so many releases, over all numbers of users."""
    found = []
    for moved, distance in widths(parameters):
        losses, step = noise_losses(moved, smallest_scale(distance, EPSILON))
        found.append(exact_epsilon([losses] * releases, step, DELTA))
    return max(found)


@pytest.mark.parametrize("cap", [34, 40, 41, 67])
@pytest.mark.parametrize(("limit", "name"), [(LIMIT, "array_averaging"), (9.0, "levy"), (0.7, "baseline")])
def test_the_releases_are_the_most_that_fit_found_one_by_one(cap: int, limit: float, name: str) -> None:
    found = limit_of(of(name, privacy__max_hats_per_day=cap, privacy__daily_limit=[limit, DELTA]))
    level, split = int(EPSILON * 1e9), ChargeSplit.of(ESTIMATORS[name].shares, found.fineness)

    def fits(releases: int) -> bool:
        composed = composed_epsilon({level: releases}, DELTA, KnownCharges(level, releases, split))
        return math.ceil(composed * 1e6) / 1e6 <= limit

    assert found.releases == max(number for number in range(1, cap + 1) if fits(number))


def test_the_largest_cap_is_read_in_two_seconds() -> None:
    begun = time.process_time()
    assert limit_of(policy(privacy__max_hats_per_day=65_535)).releases == limit_of(policy()).releases
    assert time.process_time() - begun < 2


def test_for_every_number_of_users_the_releases_within_the_limit_compose_to_no_more_than_it_exactly() -> None:
    made = policy()
    limit = limit_of(made)
    assert (limit.epsilon, limit.delta, limit.fineness, limit.least_scale) == (LIMIT, DELTA, 5, 33)
    assert LIMIT / EPSILON < limit.releases < CAP, "more than the plain sum allows"
    parameters = Parameters.of(made)
    assert LIMIT * 0.97 < worst(parameters, limit.releases) <= LIMIT
    assert worst(parameters, limit.releases + 1) > LIMIT * 0.99, "and hardly any more would"
    # Without a least width the mean of a crowd is randomised response, and the same number would promise too much.
    assert worst(replace(parameters, least_scale=0), limit.releases) > 1.05 * LIMIT


@pytest.mark.parametrize(("name", "selections"), [("levy", [0.5]), ("quantile", [0.25, 0.25])])
def test_selections_and_the_narrowest_noise_compose_to_no_more_than_the_limit_exactly(
    name: str, selections: list[float]
) -> None:
    made = of(name, privacy__daily_limit=[9.0, DELTA])
    limit, parameters = limit_of(made), Parameters.of(made)
    distance = parameters.distance(Fraction(1), Fraction(1, 2))  # of means that are all in a narrow interval
    assert distance == math.ceil(33 * EPSILON / 2) == 10
    assert 9.0 / EPSILON < limit.releases < CAP
    for moved in (1, 5, 10):
        losses, step = noise_losses(moved, smallest_scale(distance, EPSILON / 2))
        pure = [pure_losses(int(2 * distance * share), EPSILON * share) for share in selections]
        assert exact_epsilon([losses, *pure] * limit.releases, step, DELTA) <= 9.0


@pytest.mark.parametrize("name", FOR_TRUSTED)
@pytest.mark.parametrize("users", [1, 9, 217, 100_000])
def test_all_noise_of_an_estimator_has_the_least_scale(name: str, users: int) -> None:
    made = of(name)
    noise = Scripted([0], [0, 0, 0, 0])
    hat = as_users([3] * users, [3 * 20_000] * users)
    found = ESTIMATORS[name].estimate(hat, Parameters.of(made), noise)
    if found is None:
        assert name == "clipped_sum"
        return
    for _, distance, epsilon in noise.asked:
        assert distance == 0 or smallest_scale(distance, epsilon) >= limit_of(made).least_scale
    if name == "array_averaging" and users == 217:
        assert found.scale == math.floor(Fraction(6500, 217)) / EPSILON + 1 / EPSILON, "as wide as it needs to be"


@pytest.mark.parametrize("name", FOR_TRUSTED)
def test_the_plain_limit_is_the_largest_number_of_releases_that_fits(name: str) -> None:
    made = of(name)
    limit = limit_of(made)
    split = ChargeSplit.of(ESTIMATORS[name].shares, limit.fineness)

    def composed(releases: int) -> float:
        charges = {made.epsilon_nano: releases}
        return composed_epsilon(charges, DELTA, KnownCharges(made.epsilon_nano, releases, split))

    assert composed(limit.releases) <= LIMIT
    assert limit.releases == CAP or composed(limit.releases + 1) > LIMIT - 1e-6
    assert made.daily_limit_nano == limit.releases * made.epsilon_nano
    assert made.daily_limit == pytest.approx(limit.releases * EPSILON)
    assert made.delta == DELTA


def test_the_ledger_has_room_for_so_many_releases_and_no_more() -> None:
    made = policy()
    day, total = DayLedger(), Total(0, None)
    charged = [day.charge_if_room(made, f"cell/{place}", made.epsilon_nano, total) for place in range(CAP)]
    assert charged == [place < limit_of(made).releases for place in range(CAP)]


def test_a_coarse_grid_is_composed_as_any_mechanism_and_no_noise_is_widened() -> None:
    made = policy(grid=0.1)  # a two-hundredth of the range has three steps
    assert (limit_of(made).fineness, limit_of(made).least_scale) == (0, 0)
    assert composed_epsilon({made.epsilon_nano: limit_of(made).releases}, DELTA) <= LIMIT
    assert limit_of(made).releases < limit_of(policy()).releases


def test_under_add_remove_the_scales_follow_from_the_policy_and_a_whole_day_has_to_fit() -> None:
    hidden = {
        "cells": "public.txt",
        "privacy__relation": "add_remove",
        "privacy__max_hats_per_day": 12,
        "estimator": {"name": "capped_ratio", "array_length": 40},
    }
    made = policy(**hidden, privacy__daily_limit=[7.19, DELTA])
    assert (limit_of(made).releases, limit_of(made).least_scale) == (12, 0)
    assert limit_of(made).fineness == fineness_of(made)([None]) == 7
    with pytest.raises(SettingError, match="is below what a whole day can cost a user under add_remove"):
        policy(**hidden, privacy__daily_limit=[4.0, DELTA])


VALUE = {"name": "delay", "unit": "s", "lower": -600, "upper": 3600}
QUERY = {"name": "mean", "kind": "mean_speed", "days": 31, "from": "2022-01-01", "epsilon": 0.01, "min_n": 310}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"privacy__unit": "user", "privacy__total_limit": 100.0}, "daily_limit", 'the days of unit "user" add up'),
    ({"query": [QUERY]}, "daily_limit", "one answer of a query reads many days"),
    ({"estimator": {"name": "tracker"}}, "daily_limit", "a tracker's queries have charges of their own"),
    ({"estimator": {"name": "pwh"}, "privacy__local_epsilon": 1.0}, "daily_limit", "a device keeps its own account"),
    ({"values": ["speed", "delay"], "value": [VALUE]}, "daily_limit", "several values have several noises"),
    ({"privacy__daily_limit": [0.5, DELTA]}, "daily_limit", "below one HAT's epsilon 0.6"),
    ({"privacy__daily_limit": [12.0]}, "daily_limit", r"is neither a number nor \[epsilon, delta\]"),
    ({"privacy__daily_limit": [12.0, True]}, "daily_limit", r"is neither a number nor \[epsilon, delta\]"),
    ({"privacy__daily_limit": [12.0, 0]}, "daily_limit", r"has a delta of 0, which is not in \(0, 1\)"),
    ({"privacy__delta": 1e-5}, "delta", "is not the delta of daily_limit, 1e-06; remove it"),
]


@pytest.mark.parametrize(("changes", "key", "reason"), REFUSED)
def test_elsewhere_it_is_refused_with_the_reason(changes: dict[str, Any], key: str, reason: str) -> None:
    with pytest.raises(SettingError, match=rf"^policy\.privacy\.{key}: .*{reason}"):
        tracked = changes.get("estimator") == {"name": "tracker"}
        made = copy.deepcopy(TABLE["privacy"]) if not tracked else {"daily_limit": [5.0, DELTA]}
        policy(privacy=made, **changes)


def test_running_sums_and_a_private_list_of_cells_refuse_it() -> None:
    table = copy.deepcopy(TABLE) | {"continual": {"kind": "tree", "horizon_days": 7, "max_slots": 3, "max_cells": 2}}
    del table["estimator"], table["privacy"]["max_hats_per_day"]
    with pytest.raises(SettingError, match="a horizon of running sums is booked on each of its days"):
        policy_of_table(table, "jsonl", str)
    listed = Path(__file__).parents[2] / "examples" / "audit" / "private-cells.txt"
    with pytest.raises(SettingError, match="a private list of cells has charged its days"):
        policy_of_table(TABLE | {"cells": "private-cells.txt"}, "jsonl", lambda _: listed.read_text())


def test_the_limit_is_part_of_the_promise_and_a_plain_limit_keeps_its_policy_id() -> None:
    made = policy()
    hashed = json.loads(made.canonical)["privacy"]
    assert (hashed["composed_limit"], hashed["delta"]) == (LIMIT, DELTA)
    assert hashed["daily_limit"] == made.daily_limit
    plain = policy(privacy__daily_limit=made.daily_limit)
    assert "composed_limit" not in json.loads(plain.canonical)["privacy"]
    assert len({made.policy_id, plain.policy_id, policy(privacy__daily_limit=[20.1, DELTA]).policy_id}) == 3


def test_a_policy_with_such_a_limit_shares_no_day_with_another() -> None:
    composed, plain = json.loads(policy().canonical), json.loads(policy(privacy__daily_limit=40.0).canonical)
    after, last = plain | {"replaces": "composed"}, plain | {"replaces": "after"}
    for name, keys, others in (
        ("plain", plain, {"composed": composed}),
        ("composed", composed, {"plain": plain}),
        ("plain", plain, {"composed": composed, "after": after}),
    ):
        with pytest.raises(HatcastError, match=rf"policy '{name}' shares the days of .* for a policy alone") as refused:
            check_alone(name, keys, others)
        assert "\n" not in str(refused.value)
    hybrid = after | {"privacy": after["privacy"] | {"local_epsilon": 1.0}}
    listed = after | {"cells": {"source": "private", "epsilon": 1.0, "days": ["2022-01-02", "2022-01-02"], "cells": []}}
    for ahead in (hybrid, listed):  # it may charge days before its own
        with pytest.raises(HatcastError, match="policy 'after' shares the days of composed"):
            check_alone("after", ahead, {"composed": composed})
        with pytest.raises(HatcastError, match="policy 'composed' shares the days of after"):
            check_alone("composed", composed | {"replaces": "after"}, {"after": ahead | {"replaces": "before"}})
        check_alone("plain", plain | {"replaces": "after"}, {"after": ahead})
    check_alone("composed", composed, {"composed": composed})
    check_alone("plain", plain, {"other": plain})
    check_alone("last", last, {"after": after, "composed": composed})
    check_alone("composed", composed, {"after": after, "last": last})


def test_a_ledger_file_of_another_policy_refuses_it(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "ledger", policy(name="first", privacy__daily_limit=40.0)):
        pass
    with pytest.raises(HatcastError, match="shares the days of first"), open_ledger(tmp_path / "ledger", policy()):
        pass
    with open_ledger(tmp_path / "own", policy()):
        pass


def test_the_numbers_of_the_page_are_those_of_its_policy() -> None:
    page = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text()
    section = page[page.index("### A limit as (epsilon, delta)") :]
    example = tomllib.loads(section.split("```toml\n")[1].split("```")[0])["policy"]["privacy"]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) x 0\.25 \| ([\d.]+) \|$", section, re.MULTILINE)
    assert [name for name, *_ in rows] == ["array_averaging", "levy", "quantile"]
    for name, releases, plain in rows:
        made = of(name, grid=0.001, privacy=example)
        assert (str(limit_of(made).releases), f"{made.daily_limit:g}") == (releases, plain)
        assert limit_of(made).least_scale == 65


def test_budget_names_the_limit_as_it_was_given_and_what_it_became() -> None:
    made = policy()
    n = limit_of(made).releases
    day = figures(made, 1, [])["day"]
    assert day["limit"] == day["bound"] == made.daily_limit
    assert day["limit_epsilon_delta"] == {"epsilon": LIMIT, "delta": DELTA}
    assert LIMIT - EPSILON < day["epsilon_delta"]["epsilon"] <= LIMIT
    sums, _, composed = explanation(made, 1, [])[:3]
    assert ("allowed (daily_limit)", f"{n} x 0.6", f"{made.daily_limit:g}") in sums.sums
    assert f"given as (epsilon, delta) = (20, 1e-06): {n} HATs come to at most that" in sums.text
    assert "noise of 32 grid steps or more, which all noise of this policy is" in composed.text
    plain = policy(privacy__daily_limit=made.daily_limit)
    assert "limit_epsilon_delta" not in figures(plain, 1, [])["day"]
    assert "only a crowd in one HAT makes narrower" in explanation(plain, 1, [])[2].text
