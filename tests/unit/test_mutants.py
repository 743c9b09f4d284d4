"""The catalogue of mutants fits the code as it is; `scripts/mutants` runs them."""

import ast

import pytest

from tests.mutants.catalogue import ROOT, BadMutant, Mutant, load_catalogue

CATALOGUE = load_catalogue()
MUTANTS = [mutant for part in CATALOGUE for mutant in part.mutants]


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_changes_one_place_of_a_program_and_leaves_a_program(mutant: Mutant) -> None:
    mutated = mutant.applied((ROOT / mutant.file).read_text())
    if mutant.file.endswith(".py"):
        ast.parse(mutated)


def test_a_mutant_whose_text_is_gone_is_named() -> None:
    mutant = Mutant("gone", "", "x.py", "a = 1", "a = 2", ())
    with pytest.raises(BadMutant, match=r"gone: its text occurs 0 times in x\.py"):
        mutant.applied("b = 1\n")


def test_there_are_at_least_sixty_mutants_and_their_tests_are_named() -> None:
    assert len(MUTANTS) >= 60
    for mutant in MUTANTS:
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            path, _, name = test.partition("::")
            assert name, f"{mutant.name}: {test} names no test"
            assert f"def {name}(" in (ROOT / path).read_text(), f"{mutant.name}: {test}"
