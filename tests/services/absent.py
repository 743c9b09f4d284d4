"""What happens to a test that needs what is not here: skipped and counted in one line, or failed where CI is set."""

import os
from collections import Counter
from typing import Any, Final, NoReturn

import pytest

MARK: Final = "absent: "


def in_ci() -> bool:
    """True where the environment says CI: there nothing may be missing."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


def absent(reason: str) -> NoReturn:
    """End the calling test: skipped, and counted by ``count``; failed where CI is set."""
    if in_ci():
        pytest.fail(f"{reason} (CI is set, so this fails)", pytrace=False)
    pytest.skip(MARK + reason)


def count(skipped: list[Any]) -> Counter[str]:
    """Reason -> number of tests, of pytest's reports of skipped tests."""
    reasons = (str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple))
    return Counter(reason.partition(MARK)[2] for reason in reasons if MARK in reason)
