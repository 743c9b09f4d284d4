"""Descriptions: each public method of the core says what it does, or overrides one that says so."""

import importlib
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(str(path.relative_to(ROOT).with_suffix("")) for path in (ROOT / "stream").rglob("*.py"))


def undescribed(kind: type) -> list[str]:
    members = [(name, getattr(kind, name)) for name in vars(kind) if not name.startswith("_")]
    described = [(name, each) for name, each in members if callable(each) or isinstance(each, property)]
    return [f"{kind.__name__}.{name}" for name, each in described if not inspect.getdoc(each)]


class Described:
    def method(self) -> None:
        """Do nothing."""

    def bare(self) -> None: ...


class Heir(Described):
    def method(self) -> None: ...

    @property
    def own(self) -> int:
        return 1


@pytest.mark.parametrize("module", MODULES)
def test_a_public_method_is_described_by_itself_or_by_what_it_overrides(module: str) -> None:
    found = vars(importlib.import_module(f"hatcast.{module.replace('/', '.').removesuffix('.__init__')}"))
    kinds = [each for each in found.values() if inspect.isclass(each) and each.__module__ == found["__name__"]]
    assert not [name for kind in kinds for name in undescribed(kind)]


def test_a_method_without_a_description_of_its_own_or_inherited_is_found() -> None:
    assert undescribed(Described) == ["Described.bare"]
    assert undescribed(Heir) == ["Heir.own"]
