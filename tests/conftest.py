"""Fixtures for every test: see tests/services/fixtures.py. Where tests run: tests/services/side_by_side.py."""

import gc

from hypothesis import Phase, settings

pytest_plugins = [
    "tests.services.absent",
    "tests.services.coroutines",
    "tests.services.fixtures",
    "tests.services.logs",
    "tests.services.rotation",
    "tests.services.side_by_side",
    "tests.integration.pipelines",
    "tests.unit.surveyed",
]

# Each of four processes collects all tests, and keeps them: to look for garbage among them would take a fifth of the
# time. A library that takes long to import is imported by the tests that need it.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not among the tests."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Leave nothing that libraries would call a leak."""
    gc.unfreeze()


# Time is measured in bench/, not asserted here: on a loaded machine an example may take long for no fault of its own.
settings.register_profile("hatcast", deadline=None, max_examples=25)
# scripts/nightly, where time is no matter.
settings.register_profile("nightly", deadline=None, max_examples=500)
# One failing example is enough for scripts/mutants: no search for a smaller one, nor for another failure.
settings.register_profile(
    "mutants", deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate), report_multiple_bugs=False
)
settings.load_profile("hatcast")
