"""What a source may be told: that a message is done with, once Kafka has all of its readings, and in their order.

MQTT asks for acknowledgements in order [MQTT 5.0, 4.6], and in order one of AMQP acknowledges all before it.
"""

from collections import deque
from collections.abc import Callable


class Delivery:
    """One message of a source: a part of a window.

    left   readings of it that Kafka has not confirmed; and one more until all are handed over
    """

    __slots__ = ("_window", "done", "left")

    def __init__(self, window: "Window", done: Callable[[], object]) -> None:
        self.left = 1
        self.done = done
        self._window = window

    def confirmed(self) -> None:
        """Kafka has one more of its readings, or all of them have been handed over."""
        self.left -= 1
        if not self.left:
            self._window.settle()


class Window:
    """The messages of one connection that its source has not been told of."""

    def __init__(self) -> None:
        self._waiting: deque[Delivery] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, done: Callable[[], object]) -> Delivery:
        """A message that has just come. `done` is called when it and all before it are with Kafka."""
        parcel = Delivery(self, done)
        self._waiting.append(parcel)
        return parcel

    def settle(self) -> None:
        """Tell the source of what is done."""
        while self._waiting and not self._waiting[0].left:
            self._waiting.popleft().done()

    def withdraw(self, parcel: Delivery) -> None:
        """A message that was not handed over whole: its source is not told of it, and sends it again."""
        if parcel in self._waiting:
            self._waiting.remove(parcel)

    def forget(self) -> None:
        """The connection is gone: what it brought and was not told of comes again on the next one."""
        self._waiting.clear()
