"""Commands that hiredis packs are the bytes that redis-py sends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio.connection import Connection
from redis.exceptions import DataError

from hatcast.agents.redis.connection import packed_by_hiredis


def _view(data: bytes) -> memoryview:
    return memoryview(data)


NAMES = st.sampled_from(["GET", "SCRIPT LOAD", b"EVALSHA", b"CONFIG GET"])
ARGUMENTS = st.lists(
    st.one_of(
        st.text(),
        st.binary(),
        st.integers(),
        st.floats(),
        st.binary().map(_view),
        st.binary().map(bytearray),
    )
)


@given(NAMES, ARGUMENTS)
def test_a_command_is_packed_to_the_bytes_that_redis_py_sends(name: str | bytes, arguments: list[Any]) -> None:
    expected = b"".join(Connection().pack_command(name, *arguments))
    assert b"".join(packed_by_hiredis(Connection)().pack_command(name, *arguments)) == expected


@pytest.mark.parametrize("argument", [None, True, [1], {}])
def test_an_argument_that_redis_py_refuses_is_refused_in_its_words(argument: Any) -> None:
    with pytest.raises(DataError, match="Convert to a bytes, string, int or float first"):
        packed_by_hiredis(Connection)().pack_command("SET", "key", argument)
