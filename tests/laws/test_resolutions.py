"""Laws of cells of several sizes: each place is in one cell, and nothing is charged twice."""

from dataclasses import dataclass
from typing import Any

import h3.api.basic_int as h3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.errors import SettingError
from hatcast.stream.ledger.day import DayLedger, Total
from hatcast.stream.policy.cells_file import CellsFile
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.schedule import listed_cells
from tests.folding import MINUTE, NOON, PSEUDONYMS, apply, contributions, entered, fold_of, occurring, record
from tests.replayed import policy_of

COARSE = 7
CENTRE = (21.2, 72.8)
AROUND = h3.grid_disk(h3.latlng_to_cell(*CENTRE, COARSE), 1)
CHILDREN = {finer: sorted(cell for each in AROUND for cell in h3.cell_to_children(each, finer)) for finer in (8, 9)}

near = st.tuples(st.floats(CENTRE[0] - 0.03, CENTRE[0] + 0.03), st.floats(CENTRE[1] - 0.03, CENTRE[1] + 0.03))
fine_lists = st.frozensets(st.sampled_from(CHILDREN[8]) | st.sampled_from(CHILDREN[9]), min_size=1, max_size=60)


def mixed(fine: frozenset[int], **changes: Any) -> Policy:
    files = {"fine.txt": CellsFile("public", fine).text([]), **changes.pop("files", {})}
    return policy_of(files=files, resolutions=[COARSE, 8, 9], fine_cells="fine.txt", **changes)


@dataclass(frozen=True)
class Place:
    """A place, and the cells of each size that it is in."""

    lat: float
    lon: float

    def at(self, resolution: int) -> int:
        return int(h3.latlng_to_cell(self.lat, self.lon, resolution))

    @property
    def cells(self) -> list[int]:
        """Finest first."""
        return [self.at(resolution) for resolution in (9, 8, COARSE)]


def cells_of(policy: Policy, places: list[tuple[float, float]]) -> list[int]:
    """The cell that a reading at each place counts in; a bus each, so nothing is a duplicate."""
    fold = fold_of(policy)
    apply(fold, [(NOON, record(vehicle=f"bus-{at}", lat=lat, lon=lon)) for at, (lat, lon) in enumerate(places)])
    assert fold.outcomes["accepted"] == len(places)
    found = {user: cell for _, cell, user in contributions(fold)}
    assert len(contributions(fold)) == len(places), "a reading was counted in two cells"
    users = {PSEUDONYMS.of(f"bus-{at}", "2022-01-02"): at for at in range(len(places))}
    return [cell for _, cell in sorted((users[user], cell) for user, cell in found.items())]


@given(fine=fine_lists, places=st.lists(near, min_size=1, max_size=30))
def test_each_place_is_in_one_cell_the_finest_that_is_listed(
    fine: frozenset[int], places: list[tuple[float, float]]
) -> None:
    places += [h3.cell_to_latlng(cell) for cell in sorted(fine)[:5]]
    wanted = [
        next(cell for cell in Place(*each).cells if cell in fine or cell == Place(*each).at(COARSE)) for each in places
    ]
    assert cells_of(mixed(fine), places) == wanted


@given(fine=fine_lists, data=st.data())
def test_a_coarse_cell_says_that_it_is_a_remainder_wherever_a_finer_one_takes_a_place_of_it(
    fine: frozenset[int], data: st.DataObject
) -> None:
    policy = mixed(fine)
    assert policy.fine is not None
    for cell in sorted(fine)[:10]:
        corners = h3.cell_to_boundary(cell)
        weights = data.draw(st.lists(st.floats(0, 1), min_size=len(corners), max_size=len(corners)))
        total = sum(weights) or 1.0
        place = tuple(
            sum(weight * corner[axis] for weight, corner in zip(weights, corners, strict=True)) / total
            for axis in (0, 1)
        )
        if sum(weights) and Place(*place).at(h3.get_resolution(cell)) == cell:
            assert policy.fine.is_remainder(h3.int_to_str(Place(*place).at(COARSE)))
    touched = {h3.cell_to_parent(cell, COARSE) for cell in fine}
    around = {near for cell in touched for near in h3.grid_disk(cell, 1)}
    assert policy.fine.remainders <= around, "a cell far from all finer ones is whole"


@given(fine=fine_lists, places=st.lists(near, min_size=1, max_size=40), cap=st.integers(1, 6))
def test_a_users_day_pays_at_most_k_times_epsilon_over_cells_of_all_sizes(
    fine: frozenset[int], places: list[tuple[float, float]], cap: int
) -> None:
    policy = mixed(fine, privacy={"epsilon": 0.5, "max_hats_per_day": cap, "daily_limit": 105.0})
    fold = fold_of(policy)
    apply(
        fold,
        [
            (NOON + at * MINUTE, record(time=NOON + at * MINUTE, lat=lat, lon=lon))
            for at, (lat, lon) in enumerate(places)
        ],
    )
    assert all(hats <= cap for hats in entered(fold).values())
    counted = sum(count for count, *_ in contributions(fold).values())
    assert counted == occurring(fold).get("accepted", 0)
    day, total = DayLedger(), Total()
    hats = {(key, cell) for key, cell, _ in contributions(fold)}
    for key, cell in sorted(hats):
        assert day.charge_if_room(policy, f"{cell}/{key}", policy.epsilon_nano, total)
    assert len(hats) * policy.epsilon_nano == day.cost <= policy.most_hats * policy.epsilon_nano


@given(fine=fine_lists, places=st.lists(near, min_size=1, max_size=30))
def test_fine_cells_only_divide_the_readings_of_coarse_ones(
    fine: frozenset[int], places: list[tuple[float, float]]
) -> None:
    plain, divided = cells_of(policy_of(), places), cells_of(mixed(fine), places)
    for whole, part in zip(plain, divided, strict=True):
        assert part == whole or part in fine


def test_listed_cells_of_all_sizes_are_the_policys_cells_and_limit_a_days_hats() -> None:
    fine = frozenset(h3.cell_to_children(AROUND[1], 8)[:2])
    coarse = CellsFile("public", frozenset(AROUND[:1])).text([])
    policy = mixed(fine, files={"cells.txt": coarse}, cells="cells.txt", hours=[9, 12])
    assert policy.cells == fine | set(AROUND[:1])
    assert policy.most_hats == 9
    (outside,) = {cell for cell in AROUND[6:] if cell not in (policy.cells or ())}
    fold = fold_of(policy)
    lat, lon = h3.cell_to_latlng(outside)
    apply(fold, [(NOON - 90 * MINUTE, record(time=NOON - 90 * MINUTE, lat=lat, lon=lon))])
    assert occurring(fold) == {"outside_cells": 1}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"h3_resolution": 7}, "policy.resolutions: and h3_resolution are both written; remove h3_resolution"),
        ({"resolutions": [8, 7]}, "policy.resolutions: [8, 7] is not a list of H3 resolutions from coarse to fine"),
        ({"resolutions": [7]}, "policy.resolutions: [7] is not a list"),
        ({"resolutions": [7, 16]}, "policy.resolutions: [7, 16] is not a list"),
        ({"resolutions": None}, "policy.fine_cells: is not used without resolutions"),
        ({"fine_cells": None}, "policy.fine_cells: is missing; name a file of fine cells"),
        ({"fine_cells": "coarse.txt"}, "policy.fine_cells (coarse.txt): line 2 is not an H3 index of resolution 8"),
        ({"fine_cells": "none.txt"}, "policy.fine_cells (none.txt): lists no cell"),
        ({"fine_cells": "paid.txt", "cells": "paid7.txt"}, "and cells are both private selections"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_key(changes: dict[str, Any], said: str) -> None:
    cost = 'epsilon = 0.5\ndays = "2022-01-02,2022-01-08"\ntimezone = "UTC"\n'
    files = {
        "fine.txt": CellsFile("survey", frozenset(CHILDREN[8][:2])).text([]),
        "coarse.txt": CellsFile("public", frozenset(AROUND)).text([]),
        "none.txt": 'source = "public"\n',
        "paid.txt": f'source = "private"\n{cost}{CHILDREN[8][0]:x}\n',
        "paid7.txt": f'source = "private"\n{cost}{AROUND[0]:x}\n',
    }
    given = {"resolutions": [7, 8], "fine_cells": "fine.txt"} | changes
    with pytest.raises(SettingError) as refused:
        policy_of(files=files, **{key: value for key, value in given.items() if value is not None})
    assert said in str(refused.value)


def test_a_private_selection_of_fine_cells_is_booked() -> None:
    text = f'source = "private"\nepsilon = 0.5\ndays = "2022-01-02,2022-01-08"\ntimezone = "UTC"\n{CHILDREN[8][0]:x}\n'
    found = policy_of(files={"fine.txt": text}, resolutions=[7, 8], fine_cells="fine.txt").selection_cost
    assert found is not None
    assert (found.epsilon, len(found.dates)) == (0.5, 7)


def test_under_add_remove_fine_cells_are_public_and_released_with_the_others() -> None:
    privacy = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 105.0, "relation": "add_remove"}
    given = {"cells": "cells.txt", "resolutions": [7, 8], "fine_cells": "fine.txt", "privacy": privacy}
    fine = h3.cell_to_children(AROUND[0], 8)[:2]
    files = {"cells.txt": CellsFile("public", frozenset(AROUND)).text([])}

    def policy(source: str) -> Policy:
        return policy_of(files=files | {"fine.txt": CellsFile(source, frozenset(fine)).text([])}, **given)

    assert listed_cells(policy("public")) == sorted(h3.int_to_str(cell) for cell in [*AROUND, *fine])
    with pytest.raises(SettingError, match=r"fine_cells \(fine\.txt\): must be public under add_remove"):
        policy("survey")


def test_the_id_follows_the_fine_cells_and_is_as_it_was_without_them() -> None:
    one, other = (mixed(frozenset(CHILDREN[8][:number])) for number in (1, 2))
    assert len({one.policy_id, other.policy_id, policy_of().policy_id}) == 3
    assert policy_of().policy_id == policy_of(h3_resolution=7).policy_id == "b2:76fdba22d2a5713bb1b287e65ec41dca"
