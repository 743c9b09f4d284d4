"""Partitioners of keys: the defaults of Kafka's Java client and of librdkafka."""

import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return Kafka's 32-bit murmur2 (org.apache.kafka.common.utils.Utils.murmur2) as an unsigned integer."""
    state = _SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        state = state * _MULTIPLIER & _WORD ^ word
    if rest := key[whole:]:
        state = (state ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _WORD
    state = (state ^ state >> 13) * _MULTIPLIER & _WORD
    return state ^ state >> 15


def by_murmur2(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's Java client, aiokafka and kafka-python choose for a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def by_crc32(key: bytes, partitions: int) -> int:
    """Return the partition that librdkafka chooses for a key by default (`consistent_random`)."""
    return zlib.crc32(key) % partitions


Partitioner = Callable[[bytes, int], int]

PARTITIONERS: Final[Mapping[str, Partitioner]] = MappingProxyType({"murmur2": by_murmur2, "crc32": by_crc32})
