"""What the demo shows of a hybrid policy."""

from pathlib import Path

import msgspec
import pytest

from hatcast.agents.config.settings import parse_settings
from hatcast.agents.demo.defaults import hybrid_policy
from hatcast.agents.demo.feed import vehicles_with_devices
from hatcast.agents.demo.introduction import introduction
from hatcast.agents.demo.rendering import Lines
from hatcast.stream.readings.formats import FORMATS
from tests.unit.demo_states import HYBRID, blended, drawn, state


def test_a_blend_shows_both_groups_with_their_weights_and_the_width_of_both_noises(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown, view = state(**HYBRID), Lines()
    shown.add(blended())
    view.release(blended(), b"", shown)
    (line,) = capsys.readouterr().out.splitlines()
    assert " ".join(line.split()) == (
        "demo 2026-10-22 09:00-10:00 8642d9d6fffffff 21.3 km/h 20.0 to 23.9 released"
        " 20 trust (weight 0.62), 1,234 devices (0.38)"
    )
    assert any("21.3 ± 2.6" in line for line in drawn(shown, 100, 40))


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 40)])
def test_the_live_part_of_a_hybrid_policy_fits_terminals_too(width: int, height: int) -> None:
    shown = state(**HYBRID)
    shown.report_outcomes = {"accepted": 1_200, "late": 3}
    for hour in range(10, 20):
        shown.add(blended(f"{hour}:00"))
    lines = drawn(shown, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) < max(height, 20)
    assert any(line.startswith("reports ") and "1,203: 1,200 counted, 3 too late" in line for line in lines)
    assert sum("20+1,234" in line and "0.62+0.38" in line for line in lines) >= 8


def test_the_introduction_says_who_trusts_whom_and_which_noise_hides_each_group() -> None:
    shown = state(**HYBRID)
    assert shown.began is not None
    began = msgspec.structs.replace(shown.began, trusting=60, devices=540)
    rows = dict(introduction(shown, began))
    assert "60 of 600 buses, a share of 10%, trust the operator" in rows["trust"]
    assert rows["trust"].endswith("epsilon 1")
    assert "the other 540" in rows["devices"]
    for estimator, hidden in (
        ("lm_only", "lm_only uses none of them"),
        ("full_lm", "of a device to the mean of each, eps"),
    ):
        privacy = {"epsilon": 2.0, "max_hats_per_day": 40, "daily_limit": 80.0}
        other = state(privacy=privacy, estimator={"name": estimator})
        assert hidden in dict(introduction(other, began))["trust"]
    assert "epsilon 2," in rows["devices"]
    assert "epsilon: 2 for each mean" in rows["budget"], "the ledger charges what the group pays that pays more"


@pytest.mark.parametrize(("share", "devices"), [(0.0, 50), (0.1, 45), (1.0, 0)])
def test_all_but_the_share_that_trusts_the_operator_have_devices(share: float, devices: int) -> None:
    buses = [f"BUS-{number}" for number in range(50)]
    chosen = vehicles_with_devices(buses, share)
    assert len(chosen) == devices
    assert chosen <= set(buses)


@pytest.mark.parametrize("feed", [None, *FORMATS])
def test_the_hybrid_policy_of_every_feed_takes_reports(feed: str | None) -> None:
    policy = parse_settings({"policy": hybrid_policy(feed)}, Path(), {}).policy
    assert policy.takes_reports
    assert policy.hours == (0, 24)
