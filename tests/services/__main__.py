"""``python -m tests.services``: fetch what the tests of this machine need, before their time limits run."""

from contextlib import suppress

from tests.services.kafka_jars import fetch_if_needed
from tools.helm import HelmAbsent, library

fetch_if_needed()
with suppress(HelmAbsent):  # the tests say it, once
    library()
