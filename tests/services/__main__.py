"""``python -m tests.services``: fetch what the tests of this machine need, before their time limits run.

``python -m tests.services missing`` prints the packages of Debian and Ubuntu that bring what is not here.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from tests.browser.chromium import find_browser, find_driver, open_chromium
from tests.services import faketime, mosquitto, postgres, rabbitmq, tls
from tests.services.absent import ServiceAbsent, find_git, find_program
from tests.services.kafka_server import archive_classes
from tests.services.lifecycle import docker_answers
from tools.helm import HelmAbsent, library


def _find_browser() -> None:
    """The system's, or one that Playwright has fetched and that starts."""
    try:
        find_browser()
    except ServiceAbsent as reason:
        try:
            with open_chromium():
                pass
        except ServiceAbsent:
            raise reason from None


# Each raises ServiceAbsent where it finds nothing.
NEEDED: Final[tuple[Callable[[], object], ...]] = (
    partial(find_program, "redis-server", package="redis-server"),  # the one in the wheel has no TLS
    find_driver,
    _find_browser,
    mosquitto.programs,
    rabbitmq.programs,
    postgres.programs,
    partial(find_program, "promtool", package="prometheus"),
    faketime.library,
    tls.find_openssl,
    find_git,
    partial(find_program, "strip", package="binutils"),  # scripts/size
)


def missing() -> list[str]:
    """The packages that would bring what is not here."""
    packages = []
    for find in NEEDED:
        try:
            find()
        except ServiceAbsent as reason:
            packages.append(reason.package or "")
    return packages


if sys.argv[1:] == ["missing"]:
    print(*missing())
else:  # what is absent, the tests say once
    if not (os.environ.get("HATCAST_TEST_KAFKA") or docker_answers()):
        with suppress(ServiceAbsent):
            archive_classes()
    with suppress(HelmAbsent):
        library()
