"""A test may be a coroutine: it runs in an event loop of its own, each example of a law in another."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest


def _in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Wrap the test; pytest calls it as any other."""
    law = getattr(pyfuncitem.obj, "hypothesis", None)
    if law is not None and inspect.iscoroutinefunction(law.inner_test):
        law.inner_test = _in_a_loop(law.inner_test)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _in_a_loop(pyfuncitem.obj)
