"""What the demo shows of what it knows.
A command that is printed, by the demo or `init`, has the options of the format that was given.
What the demo shows of queries over days.
What the demo shows of a hybrid policy.
"""

import io
from dataclasses import fields
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from hatcast.agents.cli.recordings import format_options
from hatcast.agents.config.settings import parse_settings
from hatcast.agents.demo import texts
from hatcast.agents.demo.defaults import demo_policy, hybrid_policy
from hatcast.agents.demo.feed import vehicles_with_devices
from hatcast.agents.demo.introduction import introduction
from hatcast.agents.demo.rendering import Lines, Screen, noise_strip
from hatcast.stream.readings.formats import FORMATS, Columns, FormatChoice
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.records import ContinualRecord, NoiseRecord
from hatcast.stream.records.fields import Status as WireStatus
from tests.unit.demo_states import (
    HYBRID,
    WITH_QUERIES,
    answered,
    blended,
    budget,
    drawn,
    estimated,
    released,
    running,
    state,
    suppressed,
    tracked,
)


def test_a_release_that_comes_twice_is_counted_once() -> None:
    shown = state()
    assert [shown.add(released("09:00")), shown.add(released("09:00"))] == [True, False]
    assert (shown.records, shown.counts["released"]) == (1, 1)


def test_the_budget_record_with_the_greatest_number_counts() -> None:
    shown = state()
    for seq, spent in ((2, 2.0), (3, 3.0), (1, 1.0)):
        shown.add_budget(budget(seq, spent))
    assert shown.budget is not None
    assert texts.budget_line(shown.budget) == "budget of 2026-10-22: 3 of 105 spent"


def test_the_interval_holds_95_of_100_draws_of_the_noise() -> None:
    assert texts.mean(released("09:00", mean=21.314, scale=0.545)) == "21.3 ± 1.6"


@pytest.mark.parametrize(
    ("mean", "spread", "strip"),
    [(5.0, 2.0, "   ──●──  "), (0.0, 1.0, "●─        "), (10.0, 20.0, "─────────●")],
)
def test_an_interval_is_drawn_within_0_and_the_upper_bound(mean: float, spread: float, strip: str) -> None:
    assert noise_strip(mean, spread, top=10.0, width=10) == strip


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 10)])
def test_the_live_part_fits_terminals_of_common_sizes(width: int, height: int) -> None:
    shown = state()
    for hour in range(10, 20):
        shown.add(released(f"{hour}:00"))
        shown.add(suppressed(f"{hour}:00", "8642d9817ffffff"))
    shown.outcomes = {"accepted": 250_000, "zero": 80_000, "duplicate": 12}
    shown.add_budget(budget(1, 10.0))
    lines = drawn(shown, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) < max(height, 20)


def test_the_newest_slot_stands_first_and_few_rows_go_to_what_is_suppressed() -> None:
    shown = state()
    for cell in range(9):
        shown.add(suppressed("09:00", f"{cell:x}642d9817ffffff"))
    for slot in ("08:00", "09:00"):
        shown.add(released(slot))
    rows = [line for line in drawn(shown, 80, 24) if "8642d9d6fffffff" in line or "suppressed  " in f"{line}  "]
    assert "09:00" in rows[0]
    assert "08:00" in rows[1]
    assert sum("d9817" in line for line in rows) == 2


def test_of_a_tracker_each_hexagons_newest_estimate_is_shown_in_a_row_that_stays() -> None:
    shown = tracked()
    assert shown.add_estimate(estimated("08:00"))
    assert shown.add_estimate(estimated("09:00", stage="predicted"))
    assert shown.add_estimate(estimated("09:00", "8642d9817ffffff", half=9.0))
    assert not shown.add_estimate(estimated("08:00")), "an earlier slot is no news"
    assert not shown.add_estimate(estimated("09:00", stage="settled", half=2.0)), "nor is the same slot"
    assert shown.settled == "2026-10-22"
    for slot, half in (("09:00", 1.0), ("10:00", 20.0)):
        shown.add_estimate(estimated(slot, half=half))
        lines = [line for line in drawn(shown, 100, 40) if "8642d9" in line]
        assert [line.split()[2:4] for line in lines] == [["09:00", "8642d9817ffffff"], [slot, "8642d9d6fffffff"]]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 10)])
def test_the_live_part_of_a_tracker_fits_terminals_too(width: int, height: int) -> None:
    shown = tracked()
    for cell in range(30):
        shown.add_estimate(estimated("09:00", f"8642d9d6f{cell:06x}", "predicted" if cell % 2 else "live"))
        shown.add_running(running("09:00", f"8642d9d6f{cell:06x}", mean=31.2 if cell else None))
    shown.add_budget(budget(1, 5.0, 5.0, of_users=1.4))
    lines = drawn(shown, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) < max(height, 20)
    assert any("1.4 of 5" in line for line in lines)
    beside = [line for line in lines if line.rstrip().endswith("31.2 ± 2.4")]
    assert len(beside) == (7 if width == 80 else 0)
    assert any(line.rstrip().endswith("today so far") for line in lines) == (width == 80)


def test_lines_of_a_tracker_are_estimates_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    shown, view = tracked(), Lines()
    shown.add(released("09:00"))
    view.release(released("09:00"), b"", shown)
    view.estimate(estimated("09:00"), shown)
    view.estimate(estimated("09:00", "8642d9817ffffff", "predicted"), shown)
    view.end(shown, 12.0)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    speed = "42.38 km/h 35.38 to 49.38 road 41.30"
    assert lines[:3] == [
        f"surat-speed 2026-10-22 09:00-10:00 8642d9d6fffffff {speed} live",
        f"surat-speed 2026-10-22 09:00-10:00 8642d9817ffffff {speed} predicted",
        "-- 2026-10-22 09:00: 1 mean",
    ]


def test_the_newest_running_means_are_listed_at_the_end_in_the_policys_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown, view = tracked(), Lines()
    for each in (running("09:00"), running("10:00"), running("08:00", name="24h"), running("09:00", "8642d9817ffffff")):
        shown.add_running(each)
    shown.add_running(running("09:00", mean=99.0))
    shown.add_running(running("10:00", "8642d999fffffff", mean=None))
    view.end(shown, 12.0)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    speed = "31.20 km/h 28.80 to 33.60 mean of 9 slots"
    assert lines[:5] == [
        "-- running means, today so far:",
        f"surat-speed 2026-10-22 until 10:00 8642d9817ffffff today {speed}",
        f"surat-speed 2026-10-22 until 11:00 8642d9d6fffffff today {speed}",
        "-- running means, the last 24 hours:",
        f"surat-speed 2026-10-22 until 09:00 8642d9d6fffffff 24h {speed}",
    ]
    assert shown.began is not None
    assert "today so far, the last 24 hours" in dict(introduction(shown, shown.began))["running"]


def test_a_mean_of_a_horizon_is_labelled(capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"kind": "tree", "horizon_days": 7, "max_slots": 14, "max_cells": 20}
    shown = state(continual=keys, privacy={"epsilon": 0.5}, estimator=None)
    horizon = ContinualRecord(
        horizon="2026-10-19", last_date="2026-10-25", index=0, slots=168, kind="laplace", max_cells=3
    )
    noise = NoiseRecord(kind="continual", sd=1.0)
    known = msgspec.structs.replace(released("09:00"), running=horizon, noise=noise, interval95=(19.0, 24.0))
    Lines().release(known, b"", shown)
    (line,) = capsys.readouterr().out.splitlines()
    assert " ".join(line.split()[4:]) == "21.3 km/h 19.0 to 24.0 mean since 2026-10-19"
    shown.add(known)
    assert any("Running means, speed while moving, km/h" in line for line in drawn(shown, 80, 24))


def test_what_a_bus_has_paid_is_shown_and_not_what_is_reserved_for_all() -> None:
    shown = tracked()
    shown.add_budget(budget(1, 5.0, 5.0, of_users=1.4))
    shown.add_budget(budget(2, 5.0, 5.0))
    assert shown.budget is not None
    assert texts.budget_line(shown.budget) == "budget of 2026-10-22: 1.4 of 5 spent"


def test_a_settled_day_is_said_once_and_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    shown, view = tracked(), Lines()
    shown.add_estimate(estimated("09:00", stage="settled"))
    view.settled("2026-10-22", shown)
    assert capsys.readouterr().out.startswith("-- 2026-10-22 is settled: ")
    assert "settled 2026-10-22" in list(texts.summary(shown, 1.0))


def test_every_word_of_the_table_of_a_tracker_is_in_the_introduction() -> None:
    shown = tracked()
    assert shown.began is not None
    words = {word for word, _ in introduction(shown, shown.began)}
    assert {"predicted", "deferred", "suppressed", "budget"} <= words


def test_releases_of_a_slot_are_in_the_order_of_their_hexagons() -> None:
    shown = state()
    for cell in ("8642d9d6fffffff", "8642d9817ffffff", "8642d9c6fffffff"):
        shown.add(released("09:00", cell))
    lines = [line.split()[3] for line in drawn(shown, 100, 40) if "8642d9" in line]
    assert lines == sorted(lines)
    assert len(lines) == 3


def test_many_recordings_are_named_by_the_first_and_the_last() -> None:
    assert state("a/one.csv", "b/two.csv").options.name == "one.csv, two.csv"
    assert state(*(f"{day}.csv" for day in range(9))).options.name == "9 files, 0.csv to 8.csv"


def test_a_query_of_a_settlement_is_no_hat() -> None:
    shown = tracked()
    query = msgspec.structs.replace(released("09:00"), release_id="demo/2026-10-22Tsettlement/00007")
    assert not shown.add(msgspec.structs.replace(query, release_id="demo/2026-10-22Tpulse/00001"))
    assert shown.settling == ""
    assert not shown.add(query)
    assert (shown.records, shown.hours, shown.settling) == (2, {}, "2026-10-22")


def test_the_clock_says_when_the_next_slot_is_released() -> None:
    assert texts.clock_line(state()).endswith("03:00 is released at 04:05")


def test_a_slot_is_summed_up_once_a_later_one_comes(capsys: pytest.CaptureFixture[str]) -> None:
    shown, view = state(), Lines()
    for release in (released("09:00"), suppressed("09:00", "8642d9817ffffff"), released("10:00")):
        shown.add(release)
        view.release(release, b"", shown)
        view.refresh(shown)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "-- 2026-10-22 09:00: 1 mean, 1 suppressed"
    view.end(shown, 12.0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["-- 2026-10-22 10:00: 1 mean", "2 means, 1 suppressed in 2 slots, in 12 s"]


def test_every_outcome_and_every_status_has_words() -> None:
    assert set(texts.OUTCOMES) == set(Outcome) - {Outcome.HEARTBEAT}
    for status in WireStatus:
        assert texts.status_counts({status.value: 1})


@pytest.mark.parametrize("feed", [None, *FORMATS])
def test_the_policy_of_every_feed_is_valid_and_releases_all_day(feed: str | None) -> None:
    assert parse_settings({"policy": demo_policy(feed)}, Path(), {}).policy.hours == (0, 24)


COLUMNS = Columns(
    {"vehicle": "plate, no"}, "m/s", "%d.%m.%Y %H:%M", "Europe/Berlin", {"kind": "bus"}, "data.bikes", "latin-1", ",", 2
)


def parsed(words: list[str]) -> FormatChoice | None:
    found: list[FormatChoice | None] = []

    @click.command()
    @format_options(of="file")
    def command(feed_format: FormatChoice | None) -> None:
        found.append(feed_format)

    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    return found[0]


def test_a_format_is_printed_as_the_options_that_give_it() -> None:
    assert all(getattr(COLUMNS, each.name) != getattr(Columns(), each.name) for each in fields(Columns))
    for choice in (FormatChoice("jsonl", COLUMNS, "always", header_time=True), FormatChoice("csv", None, "missing")):
        assert parsed(choice.words) == choice


def test_answers_are_lines_and_a_repeated_one_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    shown, view = state(**WITH_QUERIES), Lines()
    assert shown.add_answer(answered())
    assert not shown.add_answer(answered())
    view.answer(answered(), b"", shown)
    view.answer(answered(None), b"", shown)
    of = "demo 2026-10-22 to 2026-10-23 09:00-10:00 8642d9d6fffffff fast"
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        f"{of} 23.4 vehicles/day 22.4 to 25.9 released",
        f"{of} suppressed (missing_days)",
    ]
    assert "queries fast: 1 answer" in list(texts.summary(shown, 1.0))


def test_the_terminal_counts_answers_while_it_runs_and_shows_them_at_the_end() -> None:
    shown, file = state(**WITH_QUERIES), io.StringIO()
    shown.add_answer(answered())
    assert any(line.split() == ["queries", "fast:", "1", "answer"] for line in drawn(shown, 80, 24))
    view = Screen(Console(width=120, height=40, file=file, force_terminal=True, color_system=None))
    with view:
        view.end(shown, 1.0)
    assert "23.4 ± 2.5 vehicles/day" in file.getvalue()


def test_a_query_without_an_answer_says_which_days_it_waits_for() -> None:
    shown = state(**WITH_QUERIES)
    assert list(texts.unanswered(shown)) == ["query fast has no answer: its first period begins on 2026-10-22"]
    shown.watermark_ms = 1_792_700_000_000  # 22 October 2026
    assert list(texts.unanswered(shown)) == [
        "query fast has no answer: its period of 2 days from 2026-10-22 to 2026-10-23 is not over in these readings"
    ]
    shown.add_answer(answered())
    assert list(texts.unanswered(shown)) == []


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
