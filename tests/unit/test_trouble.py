"""What a loop logs of failures that repeat."""

import pytest
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from agents.store.errors import Damaged, Overflow
from agents.trouble import Trouble


@pytest.mark.parametrize("error", [Damaged("{t}:ledger:2022-01-02"), Overflow("{t}:total")])
def test_a_script_that_refused_is_logged_once_with_its_key_and_what_to_do(error: Damaged | Overflow) -> None:
    trouble = Trouble("release")
    with capture_logs() as logged:
        trouble.met(error)
        trouble.met(error)
    assert [(line["log_level"], line["event"]) for line in logged] == [("error", str(error))]
    assert "nothing was written" in str(error)


def test_of_any_other_error_no_text_is_logged() -> None:
    with capture_logs() as logged:
        Trouble("release").met(ResponseError("EVALSHA with a record in it"))
    assert "record" not in str(logged)
