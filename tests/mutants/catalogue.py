"""The catalogue of mutants: one TOML file for each part of the product."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]


class BadMutant(Exception):
    """Raised for a mutant that does not fit the code any more; the message names it."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file, which breaks a promise.

    name     unique, in the field's words
    breaks   the promise that it breaks, as a sentence
    file     path from the root
    before   text that occurs once in the file
    after    text in its place
    tests    tests of pytest (`path::name`, without parameters; the fastest that see it); at least one has to fail
    """

    name: str
    breaks: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def applied(self, source: str) -> str:
        """Return the mutated source. Raises BadMutant unless the text to replace occurs exactly once."""
        found = source.count(self.before)
        if found != 1 or self.before == self.after:
            raise BadMutant(f"{self.name}: its text occurs {found} times in {self.file}, and once is wanted")
        return source.replace(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Part:
    """The mutants of one part of the product: its file's name without the ending, its title, and they."""

    name: str
    title: str
    mutants: tuple[Mutant, ...]


def load_catalogue() -> list[Part]:
    """Return the parts in the order of their files. Raises BadMutant for a name that is used twice."""
    parts = list[Part]()
    names = set[str]()
    for path in sorted(FOLDER.glob("*.toml")):
        read = tomllib.loads(path.read_text())
        part = Part(path.stem, read["part"], tuple(_mutant(each) for each in read["mutant"]))
        for name in (part.name, *(mutant.name for mutant in part.mutants)):
            if name in names:
                raise BadMutant(f"{name}: two mutants or parts have this name")
            names.add(name)
        parts.append(part)
    return parts


def _mutant(table: dict[str, Any]) -> Mutant:
    return Mutant(**{**table, "tests": tuple(table["tests"])})
