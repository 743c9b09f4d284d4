"""The search of outputs for data, in every form."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Context, Decimal
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Final
from urllib.parse import unquote_to_bytes

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.readings.vehicles import Pseudonyms
from tests.leaks import forms
from tests.leaks.marks import PLATE, Truth

_NUMBER: Final = re.compile(rb"(?<![\d.])\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2}(?!\d))?")
_GROUPED: Final = re.compile(rb"(?<![\d.])\d{1,3}(?:[,_']\d{3})+(?:\.\d+)?")
_PLACE: Final = re.compile(rb"[\w.]:")  # before a port or a line number
_WORD: Final = re.compile(rb"\w")
_ESCAPE: Final = re.compile(rb"\\+u00([0-9a-fA-F]{2})")
_ROUND: Final = Context(forms.MOST_DIGITS)
_WEAK: Final = 3  # different marks of one kind in an output, of which two would be there by chance
_WEAK_COUNTS: Final = 2  # they are few
_WINDOW: Final = 8  # bytes
_SHORT: Final = 4


class Kind(StrEnum):
    """What a mark is."""

    PLATE = "plate"
    HASH = "hash of a plate"
    PSEUDONYM = "pseudonym"
    KEY = "user key"
    SPEED = "speed"
    POSITION = "position"
    TIME = "time of a reading"
    SUM = "sum"
    MEAN = "mean"
    USERS = "number of users"
    READINGS = "number of readings"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a form says."""

    kind: Kind
    value: str


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes that a system wrote, and where.

    columnar   compressed or of columns: short forms occur there by chance
    """

    name: str
    content: bytes
    columnar: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """Data in an output, with what stands around it."""

    output: str
    kind: Kind
    value: str
    around: str


class Needles:
    """Byte strings, found in a text all at once by their first eight bytes, or four if they are short."""

    def __init__(self) -> None:
        self._marks: dict[bytes, Mark] = {}

    def add(self, needle: bytes, mark: Mark) -> None:
        """Add a byte string. A printable one of less than eight bytes is left out: it may be a word."""
        if len(needle) >= _WINDOW or (len(needle) >= _SHORT and any(byte > 0x7E for byte in needle)):
            self._marks.setdefault(needle, mark)

    def find(self, text: bytes, *, short: bool) -> Iterator[tuple[int, Mark]]:
        """Yield offset and mark of all that are in a text; `short`: also those of less than eight bytes."""
        for width in (_WINDOW, _SHORT) if short else (_WINDOW,):
            by_start, wanted = self._starts[width]
            for at in _windows(text, width, wanted):
                for needle in by_start[text[at : at + width]]:
                    if text.startswith(needle, at):
                        yield at, self._marks[needle]

    @cached_property
    def _starts(self) -> dict[int, tuple[dict[bytes, list[bytes]], NDArray[np.uint64]]]:
        """Width -> the needles by their first bytes, and these bytes as sorted integers."""
        found = {}
        for width in (_WINDOW, _SHORT):
            by_start: dict[bytes, list[bytes]] = defaultdict(list)
            for needle in self._marks:
                if (len(needle) >= _WINDOW) is (width == _WINDOW):
                    by_start[needle[:width]].append(needle)
            wanted = np.frombuffer(b"".join(by_start), f"<u{width}")
            found[width] = dict(by_start), np.sort(wanted)
        return found


@dataclass
class Search:
    """Forms of marks, and where they are."""

    exact: Needles = field(default_factory=Needles)
    caseless: Needles = field(default_factory=Needles)
    strong: dict[Decimal, Mark] = field(default_factory=dict)
    weak: dict[Decimal, Mark] = field(default_factory=dict)

    def add_texts(self, mark: Mark, exact: Iterable[bytes] = (), caseless: Iterable[bytes] = ()) -> None:
        """Add byte strings of a mark."""
        for needle in exact:
            self.exact.add(needle, mark)
        for needle in caseless:
            self.caseless.add(needle.lower(), mark)

    def add_number(self, mark: Mark, values: Iterable[Fraction], least: int = 4) -> None:
        """Add a number in several units."""
        is_speed = mark.kind in (Kind.SPEED, Kind.SUM, Kind.MEAN)
        strong = forms.STRONG_DIGITS_OF_SPEEDS if is_speed else forms.STRONG_DIGITS
        for form, is_strong in forms.rounded(values, least, strong):
            (self.strong if is_strong else self.weak).setdefault(form, mark)

    def find(self, output: Output, ignored: Iterable[Kind] = ()) -> list[Found]:
        """Return the marks that are in an output, each once."""
        left_out = {*ignored}
        hits: dict[Mark, str] = {}
        doubtful: dict[Kind, dict[Mark, str]] = defaultdict(dict)
        for layer in _layers(output.content):
            for mark, around, is_strong in self._hits(layer, columnar=output.columnar):
                if mark.kind not in left_out:
                    (hits if is_strong else doubtful[mark.kind]).setdefault(mark, around)
        for kind, of_kind in doubtful.items():
            least = _WEAK_COUNTS if kind in (Kind.USERS, Kind.READINGS) else _WEAK
            if len({mark.value for mark in of_kind}) >= least:
                hits |= of_kind
        return sorted(Found(output.name, mark.kind, mark.value, around) for mark, around in hits.items())

    def _hits(self, text: bytes, *, columnar: bool) -> Iterator[tuple[Mark, str, bool]]:
        for needles, where in ((self.exact, text), (self.caseless, text.lower())):
            for at, mark in needles.find(where, short=not columnar):
                yield mark, _around(text, at), True
        yield from self._numbers(text)

    def _numbers(self, text: bytes) -> Iterator[tuple[Mark, str, bool]]:
        for pattern in (_NUMBER, _GROUPED):
            for found in pattern.finditer(text):
                digits = found[0].translate(None, b",_'")
                if len(digits) < _SHORT:
                    continue
                value = _ROUND.create_decimal(digits.decode()).normalize()
                if value in self.strong:
                    yield self.strong[value], _around(text, found.start()), True
                if value in self.weak and _stands_alone(text, *found.span()):
                    yield self.weak[value], _around(text, found.start()), False


def _stands_alone(text: bytes, start: int, end: int) -> bool:
    """Whether a number is no part of a word, a hash, an address or a place in a file."""
    before, after = text[max(0, start - 2) : start], text[end : end + 1]
    return not _WORD.match(before[-1:]) and not _WORD.match(after) and not _PLACE.match(before)


def _layers(content: bytes) -> Iterator[bytes]:
    """Yield the content as it is, and without the escapes of JSON and of URLs if it has any."""
    yield content
    if _ESCAPE.search(content):
        yield _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), content)
    if b"%" in content:
        yield unquote_to_bytes(content)


def _windows(text: bytes, width: int, wanted: NDArray[np.uint64]) -> Iterator[int]:
    """Yield the offsets at which one of the wanted integers stands."""
    if not len(wanted):
        return
    for shift in range(width):
        number = (len(text) - shift) // width
        if number > 0:
            windows = np.frombuffer(text, f"<u{width}", number, shift)
            places = np.minimum(np.searchsorted(wanted, windows), len(wanted) - 1)
            yield from (shift + width * int(at) for at in np.flatnonzero(wanted[places] == windows))


def _around(text: bytes, at: int) -> str:
    return text[max(0, at - 60) : at + 60].decode(errors="replace")


def search_for(truth: Truth, key: bytes, periods: Sequence[str | None], *, counts: bool = False) -> Search:
    """Return the search for everything that is true of some vehicles.

    periods  dates, or first dates of horizons, of which there are pseudonyms
    counts   whether numbers of users and readings are private too
    """
    made = Search()
    made.add_texts(Mark(Kind.PLATE, PLATE), *forms.plate_texts(PLATE))
    made.add_texts(Mark(Kind.KEY, "key"), *forms.secret_texts(key[:8]))
    pseudonyms = Pseudonyms(key)
    for vehicle in sorted({each.vehicle for each in truth.marked}):
        exact, caseless, numbers = forms.hashes(vehicle)
        made.add_texts(Mark(Kind.HASH, vehicle), exact, caseless)
        for number in numbers:
            made.strong[_key_of(number)] = Mark(Kind.HASH, vehicle)
        for period in periods:
            pseudonym = pseudonyms.of(vehicle, period)
            made.add_texts(Mark(Kind.PSEUDONYM, vehicle), *forms.secret_texts(pseudonym))
            for number in forms.secret_numbers(pseudonym):
                made.strong[_key_of(number)] = Mark(Kind.PSEUDONYM, vehicle)
    _add_readings(made, truth)
    for kind, values in ((Kind.SUM, truth.sums), (Kind.MEAN, truth.means)):
        for value in values:
            _add_speed(made, Mark(kind, f"{float(value)!r}"), value)
    if counts:
        for kind, whole in ((Kind.USERS, truth.users), (Kind.READINGS, truth.counts)):
            made.weak |= {_key_of(number): Mark(kind, str(number)) for number in whole}
    return made


def _add_readings(made: Search, truth: Truth) -> None:
    arrivals = {each.arrival_ms for each in truth.readings}
    for each in truth.marked:
        speed = Fraction(each.milli, 1000)
        _add_speed(made, Mark(Kind.SPEED, f"{float(speed)!r}"), speed)
        place = Mark(Kind.POSITION, f"{each.lat_e7 / 1e7!r},{each.lon_e7 / 1e7!r}")
        for degrees in (Fraction(each.lat_e7, 10**7), Fraction(each.lon_e7, 10**7)):
            made.add_number(place, [degrees * factor for factor in forms.DEGREES.values()], forms.STRONG_DIGITS)
            made.add_texts(place, [form for form in forms.number_bytes(degrees) if len(form) == _WINDOW])
        for cell in forms.fine_cells(each.lat_e7 / 1e7, each.lon_e7 / 1e7):
            made.add_texts(place, caseless=[cell.encode()])
            made.strong[_key_of(int(cell, 16))] = place
        _add_time(made, each.time_ms, arrivals)


def _add_speed(made: Search, mark: Mark, speed: Fraction) -> None:
    made.add_number(mark, [speed * factor for factor in (forms.KMH | forms.MILLI).values()])
    made.add_texts(mark, forms.number_bytes(speed))


def _add_time(made: Search, time_ms: int, arrivals: set[int]) -> None:
    mark = Mark(Kind.TIME, str(time_ms))
    instant = datetime.fromtimestamp(time_ms / 1000, UTC)
    texts = [instant.isoformat(sep, "milliseconds").partition("+")[0].encode() for sep in "T "]
    made.add_texts(mark, forms.integer_bytes(time_ms), texts)
    for value in (Fraction(time_ms), Fraction(time_ms, 1000), Fraction(time_ms * 1000)):
        made.strong[_ROUND.divide(Decimal(value.numerator), Decimal(value.denominator)).normalize()] = mark
    if time_ms // 1000 * 1000 not in arrivals:
        made.strong[_key_of(time_ms // 1000)] = mark


def _key_of(number: int) -> Decimal:
    return _ROUND.create_decimal(number).normalize()


def as_text(found: Iterable[Found]) -> str:
    """Return what a failed test prints."""
    return "\n".join(f"{each.output}: {each.kind} {each.value}: {json.dumps(each.around)}" for each in found)
