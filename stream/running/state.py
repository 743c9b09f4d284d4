"""Inputs of a local date, from which another object continues. Exact to the last bit."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.policy.running_keys import RunningOf
from hatcast.stream.running.inputs import Inputs, SlotInputs

VERSION: Final = 1
"""of this format and of the inputs: another version's state is not read"""


class _Slot(msgspec.Struct, frozen=True):
    """Inputs of a slot. Arrays are little-endian: int32 numbers of cells, then float32 [5, N].

    of   kind of inputs -> both arrays
    """

    name: str
    start_ms: int
    end_ms: int
    of: dict[str, tuple[bytes, bytes]]


class DateState(msgspec.Struct, frozen=True):
    """Inputs of one local date.

    cells   names of the cells with a number, by the numbers that the slots have
    """

    version: int
    date: str
    cells: Sequence[str]
    slots: Sequence[_Slot]


_DECODER: Final = msgspec.msgpack.Decoder(DateState)


def encode_date(slots: Sequence[SlotInputs], names: Sequence[str]) -> bytes:
    """Return the state of the slots of one date, 1 or more. names: of cells, by their numbers."""
    used = [inputs.cells for slot in slots for inputs in slot.of.values()]
    numbers = np.unique(np.concatenate([*used, np.empty(0, np.int32)]))
    packed = [
        _Slot(
            slot.name,
            slot.start_ms,
            slot.end_ms,
            {kind.value: _packed(inputs, numbers) for kind, inputs in slot.of.items()},
        )
        for slot in slots
    ]
    cells = [names[number] for number in numbers.tolist()]
    return msgspec.msgpack.encode(DateState(VERSION, slots[0].date, cells, packed))


def decode_date(state: bytes, number: Callable[[str], int]) -> list[SlotInputs]:
    """Return the slots of a state. number: of a cell. Raises ValueError if it is damaged, or of another version."""
    try:
        date = _DECODER.decode(state)
        if date.version != VERSION:
            raise ValueError(f"version {date.version}")
        numbers = np.array([number(cell) for cell in date.cells], np.int32)
        return [
            SlotInputs(
                date.date,
                slot.name,
                slot.start_ms,
                slot.end_ms,
                {RunningOf(kind): _unpacked(*arrays, numbers) for kind, arrays in slot.of.items()},
            )
            for slot in date.slots
        ]
    except (*UNREADABLE, IndexError) as error:
        raise ValueError("the state of a date is damaged") from error


def _packed(inputs: Inputs, numbers: np.typing.NDArray[np.int32]) -> tuple[bytes, bytes]:
    columns = np.stack((inputs.weights, inputs.values, inputs.common, inputs.own, inputs.fourth))
    return np.searchsorted(numbers, inputs.cells).astype("<i4").tobytes(), columns.astype("<f4").tobytes()


def _unpacked(cells: bytes, columns: bytes, numbers: np.typing.NDArray[np.int32]) -> Inputs:
    places = np.frombuffer(cells, "<i4")
    return Inputs(numbers[places], *np.frombuffer(columns, "<f4").astype(np.float32).reshape(5, len(places)))
