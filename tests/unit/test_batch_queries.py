"""`hatcast batch --ledger` answers queries over days: which, of what, and each once.
`hatcast batch --ledger`: when a query over days is due, which of its days are missing, and whose they are.
"""

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import h3.api.basic_str as h3
import pytest

import hatcast.agents.batch.release
from hatcast.agents.batch.ledger_file import LedgerFile, open_ledger
from hatcast.agents.config.settings import load_settings
from tests.batching import CONFIG, batch, dump_of, releases, telemetry
from tests.folding import DAY, HOUR, MINUTE, NOON, record

DATE = "2022-01-02"
WEAK = "epsilon = 1000.0\nacknowledge_weak_privacy = true"
EXACT = CONFIG.replace("epsilon = 1.0", WEAK).replace("daily_limit = 105.0", "daily_limit = 1e9")
MEAN = {"name": "mean", "kind": "mean_speed", "days": 2, "from": DATE, "epsilon": 1e6, "min_n": 2}
FAST = {"name": "fast", "kind": "over_speed_limit", "days": 2, "from": DATE, "epsilon": 1e6, "speed_limit": 40.0}


def query(**keys: object) -> str:
    """A query of the policy; 1e6 is an epsilon whose noise is 0 but once in e**1000."""
    return "[[policy.query]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


@dataclass(frozen=True)
class Ride:
    """One reading."""

    vehicle: str
    at: int
    lat: float
    speed: float

    @property
    def line(self) -> bytes:
        return record(vehicle=self.vehicle, time=self.at, lat=self.lat, speed=self.speed)

    @property
    def date(self) -> str:
        return f"2022-01-{2 + (self.at - NOON + 12 * HOUR) // DAY:02}"

    @property
    def place(self) -> tuple[str, str]:
        """Slot and cell."""
        return f"{12 + (self.at - NOON) % DAY // HOUR:02}:00", h3.latlng_to_cell(self.lat, 72.8, 7)


def rides(days: Sequence[int], vehicles: int = 6) -> list[Ride]:
    """Some buses, at noon and at one o'clock, in two cells, several readings each; the same for the same days."""
    chance = random.Random(7)
    return [
        Ride(f"bus-{vehicle}", NOON + day * DAY + hour * HOUR + minute * MINUTE, lat, speed)
        for day in range(max(days) + 1)
        for hour in range(2)
        for vehicle in range(vehicles)
        for minute in range(chance.randint(1, 4))
        for lat in chance.sample((21.2, 21.6), chance.randint(1, 2))
        for speed in [float(chance.randint(1, 60))]
        if day in days
    ]


def recorded(path: Path, ridden: Sequence[Ride]) -> Path:
    path.write_bytes(b"\n".join(ride.line for ride in ridden))
    return path


def by_definition(ridden: Sequence[Ride], dates: Sequence[str]) -> dict[tuple[str, str], tuple[Fraction, Fraction]]:
    """(slot, cell) -> mean over user-days of the day's mean; mean over days of the number above 40 km/h."""
    days: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for ride in ridden:
        if ride.date in dates:
            days[ride.place][ride.date, ride.vehicle].append(ride.speed)
    found = {}
    for place, speeds in days.items():
        means = [Fraction(sum(map(int, each)), len(each)) for each in speeds.values()]
        fast = sum(max(each) > 40.0 for each in speeds.values())
        found[place] = Fraction(sum(means), len(means)), Fraction(fast, len(dates))
    return found


@dataclass(frozen=True)
class Runs:
    """The command, again and again on one ledger."""

    folder: Path

    def __call__(self, config: str, *arguments: object, form: str = "jsonl") -> list[dict[str, Any]]:
        """All records of a run."""
        path = self.folder / "hatcast.toml"
        path.write_text(config)
        return releases(batch(*arguments, "--format", form, "--config", path, "--ledger", self.ledger, "--json"))

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"


@pytest.fixture
def run(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def answers(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in records if "query" in each]


def near(published: float, exact: Fraction) -> bool:
    """Within the policy's grid of 0.001."""
    return abs(Fraction(str(published)) - exact) <= Fraction(1, 2000)


def test_queries_are_answered_as_their_definition_says_and_after_the_hats(tmp_path: Path, run: Runs) -> None:
    ridden = rides([0, 1, 2, 3])
    found = run(EXACT + query(**MEAN) + query(**FAST), recorded(tmp_path / "log", ridden))
    told = answers(found)
    assert found[-len(told) :] == told
    order = [(each["date"], each["slot"], each["query"], each["cell"]) for each in told]
    assert order == sorted(order)
    for first, last in ((DATE, "2022-01-03"), ("2022-01-04", "2022-01-05")):
        expected = by_definition(ridden, [first, last])
        of_period = [each for each in told if each["last_date"] == each["date"] == last]
        assert len(of_period) == 2 * len(expected) == 8
        for each in of_period:
            assert (each["first_date"], each["days_used"], each["status"]) == (first, 2, "released")
            exact = expected[each["slot"], each["cell"]][["mean", "fast"].index(each["query"])]
            assert near(each["mean"], exact)


def test_a_second_run_prints_the_same_bytes_and_costs_nothing(tmp_path: Path, run: Runs) -> None:
    config = CONFIG.replace("daily_limit = 105.0", "daily_limit = 1000.0")
    config += query(**MEAN | {"epsilon": 0.5}) + query(**FAST | {"epsilon": 0.5})
    path = recorded(tmp_path / "log", rides([0, 1]))
    first = run(config, path)
    policy = load_settings(tmp_path / "hatcast.toml").policy
    with open_ledger(run.ledger, policy) as ledger:
        days = [ledger.summary(date) for date in (DATE, "2022-01-03")]
    assert run(config, path) == first
    with open_ledger(run.ledger, policy) as ledger:
        assert [ledger.summary(date) for date in (DATE, "2022-01-03")] == days
    hats = sum(each["status"] == "released" for each in first if "query" not in each and each["date"] == DATE)
    for day in days:
        assert {name: (each.places, each.epsilon) for name, each in day.queries.items()} == {
            "mean": (40, 500_000_000),
            "fast": (40, 500_000_000),
        }
    assert (days[0].epsilon_user_day, days[0].releases) == ((hats + 40) * 10**9, hats)


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("before", [True, False])
def test_a_run_killed_at_any_commit_is_completed_by_the_next_ones(
    tmp_path: Path, run: Runs, monkeypatch: pytest.MonkeyPatch, *, before: bool
) -> None:
    """Each run is killed once it has made one commit, or before its second one."""
    monkeypatch.setattr(hatcast.agents.batch.release, "MAX_BATCH", 3)
    config = CONFIG.replace("= 105.0", "= 1000.0") + query(**MEAN | {"epsilon": 0.5}) + query(**FAST | {"epsilon": 0.5})
    path = recorded(tmp_path / "log", rides([0, 1]))
    commit, committed, durable, runs = LedgerFile.commit, 0, {}, 0

    def killed(ledger: LedgerFile, *given: Any) -> dict[str, bytes]:
        nonlocal committed
        committed += 1
        if before and committed == 2:
            raise Killed
        records = commit(ledger, *given)
        durable.update(records)
        if not before:
            raise Killed
        return records

    monkeypatch.setattr(LedgerFile, "commit", killed)
    found = None
    while found is None:
        runs, committed = runs + 1, 0
        try:
            found = run(config, path)
        except Killed:
            continue
    assert (runs, len(found), len(answers(found))) == (4 + 4 + (not before), 16, 8)
    assert {each["release_id"]: each for each in found} == {
        name: json.loads(record) for name, record in durable.items()
    }
    for date in (DATE, "2022-01-03"):
        numbers = [each["seq"] for each in found if each["date"] == date]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_too_few_user_days_are_not_answered_and_what_was_reserved_stays(tmp_path: Path, run: Runs) -> None:
    path = recorded(tmp_path / "log", rides([0, 1]))
    told = answers(run(EXACT + query(**MEAN | {"min_n": 13}), path))
    assert {each["reason"] for each in told} == {"too_few_user_days"}
    with open_ledger(run.ledger, load_settings(tmp_path / "hatcast.toml").policy) as ledger:
        assert ledger.summary(DATE).queries["mean"].amount == 40 * 10**15


def test_a_query_whose_period_has_a_day_without_room_is_exhausted(tmp_path: Path, run: Runs) -> None:
    # All days together may cost 50: those of the first day cost 4 HATs and 40 for queries, which leaves room for HATs.
    limits = 'unit = "user"\ntotal_limit = 50.0'
    config = CONFIG.replace("daily_limit", f"{limits}\ndaily_limit")
    config += query(**MEAN | {"epsilon": 0.5}) + query(**FAST | {"epsilon": 0.5, "days": 1})
    records = run(config, recorded(tmp_path / "log", rides([0, 1])))
    told = answers(records)
    assert [each["status"] for each in records if "query" not in each] == ["released"] * 8
    found = {(each["query"], each["date"]): each for each in told}
    assert {key: each["status"] for key, each in found.items()} == {
        ("fast", DATE): "released",
        ("fast", "2022-01-03"): "budget_exhausted",
        ("mean", "2022-01-03"): "budget_exhausted",
    }
    for each in told:
        assert ("mean" in each) == (each["status"] == "released")
        assert "raw" not in each or each["query"] == "fast"


def test_people_are_shown_the_answers_and_what_they_cost_on_each_of_their_days(tmp_path: Path) -> None:
    config, path = tmp_path / "hatcast.toml", recorded(tmp_path / "log", rides([0, 2]))
    config.write_text(EXACT + query(**FAST | {"days": 3, "missing_days": "leave_out"}))
    shown = batch(path, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger").stdout
    answered = shown.partition(f"Answers to fast, {DATE} to 2022-01-04")[2]
    for word in (" a day", "2 of 3 days", "2022-01-03"):  # on which there was nobody
        assert word in answered
    config.write_text(EXACT)
    assert "nswers" not in batch(path, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "other").stdout


def test_people_are_told_why_there_is_no_answer_and_that_a_period_is_not_over(tmp_path: Path) -> None:
    config, path = tmp_path / "hatcast.toml", recorded(tmp_path / "log", rides([0, 2]))
    for number, (days, words) in enumerate([(3, "suppressed (missing_days)"), (30, "no answers to queries")]):
        config.write_text(EXACT + query(**FAST | {"days": days}))
        ledger = tmp_path / f"ledger{number}"
        assert words in batch(path, "--format", "jsonl", "--config", config, "--ledger", ledger).stdout


__all__ = ["run"]  # the fixture


def test_what_a_period_has_not_reached_is_asked_of_a_later_run_that_has_all_its_days(tmp_path: Path, run: Runs) -> None:
    config = EXACT + query(**MEAN)
    some = run(config, recorded(tmp_path / "some", rides([0])))
    assert answers(some) == []
    whole = run(config, recorded(tmp_path / "whole", rides([0, 1])))
    assert [each["days_used"] for each in answers(whole)] == [2] * 4
    reached = [ride for ride in rides([0, 1]) if ride.date == DATE or ride.place[0] == "12:00"]
    cut = Runs(tmp_path / "cut")
    cut.folder.mkdir()
    assert {each["slot"] for each in answers(cut(config, recorded(tmp_path / "log", reached)))} == {"12:00"}


@pytest.mark.parametrize("query_of", [MEAN, FAST])
def test_a_day_without_data_is_missing_and_the_policy_says_what_comes_of_it(
    tmp_path: Path, run: Runs, query_of: dict[str, Any]
) -> None:
    keys = query_of | {"days": 3}
    config = EXACT + query(**keys) + query(**keys | {"name": "without", "missing_days": "leave_out"})
    ridden = rides([0, 2, 3])
    told = answers(run(config, recorded(tmp_path / "log", ridden)))
    expected = by_definition(ridden, [DATE, "2022-01-04"])
    assert len(told) == 2 * len(expected) == 8
    for each in told:
        assert (each["missing"], each["days_used"]) == (["2022-01-03"], 2)
        if each["query"] == "without":
            assert near(each["mean"], expected[each["slot"], each["cell"]][query_of is FAST])
        else:
            assert (each["status"], each["reason"]) == ("suppressed", "missing_days")
            assert "mean" not in each


def test_a_day_on_which_another_cell_has_data_is_not_missing(tmp_path: Path, run: Runs) -> None:
    ridden = [Ride(bus, NOON, lat, 50.0) for lat, bus in ((21.2, "a"), (21.2, "b"), (21.6, "c"))]
    ridden += [Ride("a", NOON + DAY, 21.6, 50.0)]
    told = answers(run(EXACT + query(**FAST), recorded(tmp_path / "log", ridden)))
    cells = [h3.latlng_to_cell(lat, 72.8, 7) for lat in (21.2, 21.6)]
    assert {each["cell"]: each["mean"] for each in told} == dict.fromkeys(cells, 1.0)
    assert all(each["days_used"] == 2 for each in told)


def test_periods_with_days_of_a_successor_are_nobodys(tmp_path: Path, run: Runs) -> None:
    def of(name: str, succession: str, **keys: object) -> str:
        return EXACT.replace('name = "test"', f'name = "{name}"\n{succession}') + query(**FAST | keys)

    assert run(of("old", ""), recorded(tmp_path / "none", [])) == []
    path = recorded(tmp_path / "log", rides([0, 1, 2, 3, 4, 5]))
    new = of("new", 'replaces = "old"\nfrom = "2022-01-05"', **{"from": "2022-01-05"})
    assert {(each["first_date"], each["last_date"]) for each in answers(run(new, path))} == {
        ("2022-01-05", "2022-01-06")
    }
    # Of the old one, 2022-01-04 to 05 would be the next period.
    assert {each["last_date"] for each in answers(run(of("old", ""), path))} == {"2022-01-03"}


def dumped(path: Path, *closing: int, starts: Sequence[int] = (), first: int = NOON - 13 * HOUR) -> Path:
    """Every bus at noon on two days, in two partitions that end with these ticks."""
    logs = telemetry(2, NOON, NOON + DAY)
    return dump_of(path, [[(first, b""), *log, (end, b"")] for log, end in zip(logs, closing, strict=True)], starts)


def test_of_a_dump_only_what_every_partitions_clock_has_closed_is_answered(tmp_path: Path, run: Runs) -> None:
    closes = NOON + DAY + HOUR + 5 * MINUTE
    slow = dumped(tmp_path / "slow", closes, closes - 1)
    assert answers(run(EXACT + query(**FAST), slow, form="kafka")) == []
    [one] = answers(run(EXACT + query(**FAST), dumped(tmp_path / "dump", closes, closes), form="kafka"))
    assert (one["status"], one["mean"]) == ("released", 0.0)


def test_the_days_of_a_dump_that_lost_records_are_missing(tmp_path: Path, run: Runs) -> None:
    closes, config = NOON + 30 * HOUR, EXACT + query(**FAST, missing_days="leave_out")
    dump = dumped(tmp_path / "dump", closes, closes, starts=[0, 7], first=NOON)
    [one] = answers(run(config, dump, form="kafka"))
    assert (one["status"], one["missing"], one["days_used"]) == ("released", [DATE], 1)
    other = Runs(tmp_path / "other")
    other.folder.mkdir()
    whole = dumped(tmp_path / "whole", closes, closes, starts=[0, 7])  # from the evening before on
    [one] = answers(other(config, whole, form="kafka"))
    assert ("missing" in one, one["days_used"]) == (False, 2)
