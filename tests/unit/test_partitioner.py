"""The partitioners are those of the clients that produce."""

import zlib

import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from hatcast.stream.readings.vehicles import PARTITIONERS, by_crc32, by_murmur2, murmur2

keys = st.binary(max_size=200)


@given(keys)
def test_murmur2_is_that_of_kafka_python_and_of_aiokafka(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF == murmur2_of_aiokafka(key) & 0xFFFFFFFF


# From Kafka's own org.apache.kafka.common.utils.UtilsTest.
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_values_of_kafkas_own_tests(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(keys, st.integers(1, 1000))
def test_murmur2_chooses_by_its_lower_31_bits(key: bytes, partitions: int) -> None:
    assert by_murmur2(key, partitions) == (murmur2_of_kafka_python(key) & 0x7FFFFFFF) % partitions


@given(keys, st.integers(1, 1000))
def test_crc32_chooses_as_librdkafka_does(key: bytes, partitions: int) -> None:
    assert by_crc32(key, partitions) == zlib.crc32(key) % partitions


def test_crc32_gives_the_values_of_librdkafkas_own_tests() -> None:
    # rd_kafka_msg_partitioner_consistent of unittest_msg_partitioners (rdkafka_partition.c) is rd_crc32 % partitions.
    assert (zlib.crc32(b"123456789"), by_crc32(b"123456789", 1 << 32)) == (0xCBF43926, 0xCBF43926)


def test_the_names_are_those_of_the_configuration() -> None:
    assert set(PARTITIONERS) == {"murmur2", "crc32"}
