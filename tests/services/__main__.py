"""``python -m tests.services``: fetch what the services of this machine need, before the tests' time limits run."""

from tests.services.kafka_jars import fetch_if_needed

fetch_if_needed()
