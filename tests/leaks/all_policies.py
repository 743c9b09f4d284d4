"""The search on a policy of each estimator and of each kind of running sums: scripts/nightly runs it."""

from pathlib import Path
from typing import Any, Final

import pytest

from hatcast.stream.continual import KINDS
from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.hybrid import HYBRID_ESTIMATORS
from tests.leaks.cities import CONTINUAL, HYBRID, LIMITS, City
from tests.leaks.steps import ask, go_through, own_device
from tests.leaks.system import opened
from tests.leaks.verdict import assert_no_leak
from tests.services import KafkaServer, RedisServer

KEYS: Final[dict[str, dict[str, Any]]] = {
    "levy": {"array_length": 2},
    "quantile": {"array_length": 2},
    "kvh": {"sigma": 2e5},
    "kvh_heterogeneous": {"sigma": 2e5},
}


def cities() -> list[City]:
    """A policy of each estimator that takes `replace`, of each hybrid one, and of each kind of running sums."""
    without_reports = [*ESTIMATORS, "tcm_only"]
    plain = [
        City(name, {"privacy": LIMITS, "estimator": {"name": name, **KEYS.get(name, {})}})
        for name in without_reports
        if name != "capped_ratio"  # of `add_remove`
    ]
    hybrid = [
        City(name, {"privacy": LIMITS, "estimator": {"name": name, **KEYS.get(name, {})}}, devices=HYBRID.devices)
        for name in HYBRID_ESTIMATORS
        if name != "tcm_only"  # takes no reports
    ]
    gaussian = {"privacy": LIMITS, "estimator": {"name": "pwh", "noise": "gaussian"}}
    continual = [
        City(kind, CONTINUAL.policy | {"continual": CONTINUAL.policy["continual"] | {"kind": kind.value}}, fills=())
        for kind in KINDS
    ]
    return [*plain, *hybrid, City("pwh-gaussian", gaussian, devices=HYBRID.devices), *continual]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("city", cities(), ids=lambda city: city.name)
def test_nothing_leaks(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path, city: City) -> None:
    with opened(kafka, redis_server, tmp_path, city) as run:
        go_through(run)
        ask(run, *own_device(run))
        outputs = run.outputs()
    assert_no_leak(city, outputs)
