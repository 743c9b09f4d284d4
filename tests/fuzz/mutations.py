"""Mutations that libFuzzer does not find by itself: extreme values, nesting, splices, and damaged UTF-8."""

import random
from typing import Final

_EXTREMES: Final = (
    *(b"NaN", b"Infinity", b"-Infinity", b"nan", b"1e400", b"-1e400", b"1e-400", b"-0.0", b"0x10", b"1_000"),
    *(b"9" * 400, b"-" + b"9" * 400, b"0." + b"0" * 400 + b"1", b"1E999999999", b"9" * 5_000),
    *(b"18446744073709551616", b"-9223372036854775809", b"4294967296", b"2147483648", b"180.0000001", b"-90.0000001"),
    *(b"9999-12-31T23:59:59.999999-23:59", b"0001-01-01T00:00:00+23:59", b"2022-02-30T25:61:61Z", b"253402300800000"),
    *(b"null", b"true", b"{}", b"[]", b'""', b'"\\ud800"', b"\xed\xa0\x80", b"\xff\xfe", b"\xef\xbb\xbf", b"\x00"),
    *(b"[" * 2_000, b'{"a":' * 2_000, b"(" * 500, b"\r", b"\r\n", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"'", b'"'),
)
_OURS: Final = 0.25  # of the inputs; the others are libFuzzer's


def mutate(data: bytes, max_bytes: int, seed: int) -> bytes:
    """Return another input, libFuzzer's or ours. It depends on nothing but the arguments."""
    import atheris

    random_numbers = random.Random(seed)  # simulation
    if random_numbers.random() > _OURS:
        return bytes(atheris.Mutate(data, max_bytes))
    return damaged(data, max_bytes, random_numbers)


def damaged(data: bytes, max_bytes: int, random_numbers: random.Random) -> bytes:
    """Return another input, of our kinds."""
    begin = random_numbers.randint(0, len(data))
    end = random_numbers.randint(begin, min(len(data), begin + 24))
    match random_numbers.randrange(5):
        case 0:
            data = data[:begin] + random_numbers.choice(_EXTREMES) + data[end:]
        case 1:  # truncated
            data = data[:begin]
        case 2:  # duplicated, as a key or a line
            data = data[:end] + data[begin:end] * random_numbers.randint(1, 4) + data[end:]
        case 3:  # two pieces swapped
            data = data[end:] + data[begin:end] + data[:begin]
        case _:  # bits
            flipped = bytearray(data)
            for _ in range(random_numbers.randint(1, 4) if data else 0):
                flipped[random_numbers.randrange(len(data))] ^= 1 << random_numbers.randrange(8)
            data = bytes(flipped)
    return data[:max_bytes]
