"""Forms in which data may be written: as text, as numbers of any unit, and as bytes.

A strong form does not occur by chance. Weak ones, of few digits, count if two different marks are found in one output.
"""

import base64
import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Final

import h3.api.basic_str as h3

from hatcast.stream.readings.vehicles import murmur2

KMH: Final = {"km/h": Fraction(1), "m/s": Fraction(5, 18), "mph": Fraction(15625, 25146), "kn": Fraction(250, 463)}
MILLI: Final = {"milli km/h": Fraction(1000)}
DEGREES: Final = {"degrees": Fraction(1), "e6": Fraction(10**6), "e7": Fraction(10**7)}
STRONG_DIGITS: Final = 7
STRONG_DIGITS_OF_SPEEDS: Final = 9  # an estimate of some thousands has 8, so one may be a speed in m/s
MOST_DIGITS: Final = 15
_LEAST_DIGITS: Final = 4
_HALF: Final = {n: Context(n, ROUND_HALF_EVEN) for n in range(_LEAST_DIGITS, MOST_DIGITS + 1)}
_DOWN: Final = {n: Context(n, ROUND_DOWN) for n in range(_LEAST_DIGITS, MOST_DIGITS + 1)}
_EXACT: Final = Context(20)


def rounded(
    values: Iterable[Fraction], least: int = _LEAST_DIGITS, strong: int = STRONG_DIGITS
) -> Iterator[tuple[Decimal, bool]]:
    """Yield what texts of these numbers may be read as, rounded or cut to `least` digits or more, and if it is strong.

    strong   of so many digits or more
    A form that ends with a zero is left out: it is one of fewer digits.
    """
    for value in values:
        exact = _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
        for n in range(least, MOST_DIGITS + 1):
            for context in (_HALF[n], _DOWN[n]):
                form = context.plus(exact).normalize()
                if len(form.as_tuple().digits) == n:
                    yield form, n >= strong
        yield _HALF[MOST_DIGITS].plus(exact).normalize(), True


def number_bytes(kmh: Fraction) -> Iterator[bytes]:
    """Yield a speed or a sum as bytes: floats of each unit, integers and varints in milli-units."""
    for factor in (*KMH.values(), Fraction(1000)):
        for code in "<d", ">d", "<f", ">f":
            yield struct.pack(code, float(kmh * factor))
    yield from integer_bytes(round(kmh * 1000))


def integer_bytes(value: int) -> Iterator[bytes]:
    """Yield a large integer as int64 and int32, big- and little-endian, and as varints, plain and zigzag."""
    codes = "<q", ">q", *(("<I", ">I") if value < 1 << 32 else ())
    for code in codes:
        yield struct.pack(code, value)
    yield varint(value)
    yield varint(value << 1)  # zigzag, as Avro and Protobuf's sint64


def varint(value: int) -> bytes:
    """Return a LEB128 varint."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def base64s(data: bytes) -> Iterator[bytes]:
    """Yield the part of its base64 that does not depend on what is encoded before and after it."""
    for shift in range(3):
        whole = base64.b64encode(bytes(shift) + data + bytes(2))
        inner = whole[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
        yield from {inner, inner.translate(bytes.maketrans(b"+/", b"-_"))}


def plate_texts(part: str) -> tuple[list[bytes], list[bytes]]:
    """Return the texts of a plate's part: to be searched as they are, and in lower case."""
    spellings = [spelling.encode() for spelling in (part, part.lower())]
    exact = [form for each in spellings for form in base64s(each)]
    exact += [part.encode(f"utf-16-{end}") for end in ("le", "be")]
    return exact, [part.lower().encode(), part[::-1].lower().encode(), *(each.hex().encode() for each in spellings)]


def hashes(vehicle: str) -> tuple[list[bytes], list[bytes], list[int]]:
    """Return hashes of a plate without a key: to be searched as they are, in lower case, and as numbers."""
    exact: list[bytes] = []
    caseless: list[bytes] = []
    numbers: list[int] = []
    for text in {vehicle, vehicle.lower()}:
        data = text.encode()
        for name in ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s"):
            digest = hashlib.new(name, data).digest()
            more = secret_texts(digest[:8])
            exact += more[0]
            caseless += more[1]
        for short in (zlib.crc32(data), murmur2(data), murmur2(data) & 0x7FFFFFFF):
            numbers.append(short)
            caseless.append(b"%08x" % short)
    return exact, caseless, numbers


def secret_texts(data: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the forms of eight random bytes: to be searched as they are, and in lower case."""
    return [data, data[::-1], *base64s(data)], [data.hex().encode(), data[::-1].hex().encode()]


def secret_numbers(data: bytes) -> list[int]:
    """Return the integers that eight bytes are."""
    return [abs(int.from_bytes(data, order, signed=signed)) for order in ("little", "big") for signed in (False, True)]


def fine_cells(lat: float, lon: float) -> Iterator[str]:
    """Yield the hexagons of a place that are finer than those of the policies."""
    for resolution in range(8, 16):
        yield str(h3.latlng_to_cell(lat, lon, resolution))
