"""The golden messages of this version: made by the code that publishes, with scripted noise and a fixed clock."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import h3.api.basic_str as h3
import msgspec
import numpy as np

from hatcast.agents.config.tables import TopicsTable
from hatcast.agents.kafka.cloud_events import Headers, cloud_event, release_event
from hatcast.agents.kafka.dead_letters import DeadLetter, Reason
from hatcast.agents.release.estimates import estimate_message, running_message
from hatcast.agents.release.messages import budget_message
from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import Row, pack
from hatcast.stream.hybrid import HYBRID_KEYS, HybridParameters, report_bound
from hatcast.stream.kmeans.messages import encode
from hatcast.stream.ledger.day import DayLedger, Total, reservations
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.policy.tracker_keys import TRACKER_ESTIMATOR
from hatcast.stream.queries import RetainedDay
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.formats.jsonl import canonical_value
from hatcast.stream.readings.reading import Reading, ValueReading
from hatcast.stream.records import EstimateRecord, NoiseRecord, ReleaseRecord, ReportRecord
from hatcast.stream.records.fields import Status
from hatcast.stream.records.projections import HEAD
from hatcast.stream.release.budget_records import Spent
from hatcast.stream.release.continual import ContinualRelease
from hatcast.stream.release.hats import HatChunks, Release, release_of, undrawn_release
from hatcast.stream.release.queries import QueryRelease, query_periods_of, query_release_of
from hatcast.stream.release.tracker import PolicyTracker, hat_users
from hatcast.stream.release.tracker_records import TrackerRelease, hat_release
from hatcast.stream.tracker.smoother import estimates_of
from hatcast.stream.tracker.timetable import Timetable
from tests.contracts.clustering_goldens import cluster_answers, clusterings
from tests.contracts.continual_goldens import running_sums
from tests.contracts.running_goldens import running_means
from tests.signing import Device, report_of
from tests.support import Scripted
from tools.schemas.golden import Golden

TOPICS: Final = TopicsTable()
CELL: Final = "87608b0d2ffffff"
FEW: Final = "87608b0d3ffffff"
DATE, NEXT_DATE, SLOT = "2022-01-02", "2022-01-03", "09:00"
NOW_MS: Final = 1_641_098_103_120  # 2022-01-02T04:35:03.120Z, some seconds after the slot is final
NEXT_MS: Final = NOW_MS + 86_400_000
READING: Final = Reading("GJ05BX1234", "2022-01-02T09:29:43+05:30", 21.1959, 72.8302, 38.5)

MEAN: Final[dict[str, Any]] = {
    "name": "two-days",
    "kind": "mean_speed",
    "days": 2,
    "from": DATE,
    "epsilon": 0.25,
    "min_n": 9,
    "missing_days": "suppress",
}
FAST: Final[dict[str, Any]] = {
    "name": "over-50",
    "kind": "over_speed_limit",
    "days": 2,
    "from": DATE,
    "epsilon": 0.5,
    "speed_limit": 50.5,
    "missing_days": "leave_out",
}
CROWD: Final = [(60, 1_800_000 + 71_001 * bus) for bus in range(24)]
"""of each bus its readings and their sum, milli-km/h"""


REPORT: Final = ReportRecord(
    id="0123456789abcdef0123456789abcdef",
    policy_id="b2:278189782e2eb15fd5785a141a4502b3",
    cell=CELL,
    date=DATE,
    slot=SLOT,
    value=-3.125,
    epsilon=0.5,
)


def policy(name: str, *queries: Mapping[str, Any], **changes: Any) -> Policy:
    """Under `replace`, as in the design."""
    privacy = {"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 105.0} | changes.pop("privacy", {})
    table = {"name": name, "upper_bound": 65.0, "timezone": "Asia/Kolkata", "privacy": privacy, "query": queries}
    keys = {**ESTIMATOR_KEYS, **HYBRID_KEYS}
    fine = f'source = "public"\n{CELL}'
    table |= {"estimator": {"name": "array_averaging"}} | changes
    return read_policy({key: value for key, value in table.items() if value is not None}, keys, lambda _: fine)


def hidden(*queries: Mapping[str, Any]) -> Policy:
    """Under `add_remove`."""
    table = {
        "name": "surat-presence",
        "upper_bound": 65.0,
        "timezone": "Asia/Kolkata",
        "cells": "public.txt",
        "privacy": {"relation": "add_remove", "epsilon": 1.0, "max_hats_per_day": 8, "daily_limit": 12.5},
        "estimator": {"name": "capped_ratio", "array_length": 40},
        "query": queries,
    }
    return read_policy(table, ESTIMATOR_KEYS, lambda _: f'source = "public"\n{CELL}')


DEVICES: Final = policy("surat-devices", privacy={"local_epsilon": 1.5}, estimator={"name": "kvh", "sigma": 12.0})
GAUSSIAN: Final = policy(
    "surat-devices-gaussian",
    privacy={"epsilon": 3.0, "local_epsilon": 1.5, "max_coalition": 2},
    estimator={"name": "pwh", "noise": "gaussian"},
)
ALONE: Final = policy("surat-devices-alone", privacy={"epsilon": 8.0}, estimator={"name": "lm_only"})
SEPARATE: Final = policy(
    "surat-devices-separate",
    privacy={"epsilon": 3.0, "local_epsilon": 9.0, "max_coalition": 2},
    estimator={"name": "pwh", "noise": "gaussian", "groups": "separate"},
)
SPEED: Final = policy("surat-speed", MEAN, FAST)
MIXED: Final = policy(
    "surat-mixed",
    {**FAST, "days": 1},
    resolutions=[6, 7],
    fine_cells="fine.txt",
)
COARSE: Final = h3.cell_to_parent(CELL)
REQUESTED: Final = policy(
    "surat-requests", {key: value for key, value in FAST.items() if key != "speed_limit"} | {"on_request": True}
)
VALUES: Final = policy(
    "surat-speed-and-delay",
    values=["speed", "delay"],
    value=[{"name": "delay", "unit": "s", "lower": -600.0, "upper": 3600.0, "grid": 0.5}],
)
DELAY: Final = policy(
    "surat-delay",
    {**MEAN, "kind": "mean_value"},
    {key: value for key, value in FAST.items() if key != "speed_limit"}
    | {"kind": "over_threshold", "threshold": -30.5},
    value={"name": "delay", "unit": "s", "lower": -600.0, "upper": 3600.0, "grid": 0.5},
    upper_bound=None,
)
JOURNEY: Final = policy("surat-journey", MEAN, drop_zero=False, min_interval="30s")
PRESENCE: Final = hidden({**FAST, "days": 1})


_TRACKER: Final[dict[str, Any]] = {
    "name": "surat-tracker",
    "upper_bound": 65.0,
    "timezone": "Asia/Kolkata",
    "privacy": {"daily_limit": 5.0},
    "estimator": {"name": "tracker"},
}
TRACKER: Final = read_policy(_TRACKER, TRACKER_ESTIMATOR, lambda _: "")
TIMED: Final = read_policy(
    _TRACKER | {"name": "surat-timetable", "tracker": {"timetable": "gtfs.zip"}}, TRACKER_ESTIMATOR, lambda _: ""
)


LOADS: Final = read_policy(
    {key: value for key, value in _TRACKER.items() if key != "upper_bound"}
    | {"name": "surat-loads", "value": {"name": "load", "unit": "%", "lower": 0, "upper": 120}},
    TRACKER_ESTIMATOR,
    lambda _: "",
)


def tracked() -> Iterator[tuple[str, TrackerRelease]]:
    """A HAT that a tracker queries, others, a pulse, a query of the settlement, a scheduled speed, and a value."""
    tracker, calendar = PolicyTracker(TRACKER, None), Calendar(TRACKER)
    tracker.begin_day(DATE, [])
    (slot,) = (each for each in calendar.slots_of(DATE) if each.name == SLOT)
    hats = [hat_users(CELL, HatChunks([pack(crowd(CROWD))])), hat_users(FEW, HatChunks([pack(crowd(CROWD[:2]))]))]
    queried, few = tracker.close_slot(slot, hats, Scripted([-443_000] * 9))
    yield "tracker_released", queried
    yield "tracker_suppressed", few
    yield "tracker_deferred", hat_release(TRACKER, calendar, slot, hats[0], Status.DEFERRED)
    yield "tracker_budget_exhausted", queried.exhausted()
    yield "tracker_settlement", tracker.settle(Scripted([1_000] * 9))[0]
    both = [hats[0], hat_users(FEW, HatChunks([pack(crowd(CROWD[2:]))]))]
    tracker = PolicyTracker(TRACKER, None)
    tracker.begin_day(DATE, [])
    yield "tracker_pulse", tracker.close_slot(slot, both, Scripted([-453_000] * 9))[0]
    timed = PolicyTracker(TIMED, None, Timetable.of({CELL: 231}))
    timed.begin_day(DATE, [])
    yield "tracker_scheduled", timed.close_slot(slot, hats, Scripted([-443_700] * 9))[0]
    loads = PolicyTracker(LOADS, None)
    loads.begin_day(DATE, [])
    yield "tracker_value", loads.close_slot(slot, hats, Scripted([-443_000] * 9))[0]


def blended(of: Policy, users: Sequence[tuple[int, int]], reports: Sequence[int], *draws: int) -> Release:
    """A release of a policy with devices, whose reports are these, in steps."""
    shift = report_bound(HybridParameters.of(of))
    rows = [Row(device.to_bytes(8, "big"), 1, steps + shift, steps + shift, 1) for device, steps in enumerate(reports)]
    chunks = HatChunks([pack(crowd(users))] if users else [], [pack(rows)] if rows else [])
    return release_of(of, Calendar(of), f"{DATE}/{SLOT}", CELL, chunks, Scripted(draws))


def crowd(users: Sequence[tuple[int, ...]]) -> list[Row]:
    return [
        Row(bus.to_bytes(8, "big"), count, total, total // count, 1, tuple(others))
        for bus, (count, total, *others) in enumerate(users)
    ]


def released(of: Policy, users: Sequence[tuple[int, ...]], *draws: int, cell: str = CELL) -> Release:
    rows = crowd(users)
    return release_of(
        of, Calendar(of), f"{DATE}/{SLOT}", cell, HatChunks([pack(rows)] if rows else []), Scripted(draws)
    )


def answered(
    of: Policy, name: str, days: Mapping[str, Sequence[tuple[int, int]]], *draws: int, cell: str = CELL
) -> QueryRelease:
    (asked,) = (one for one in query_periods_of(of, Calendar(of), DATE, SLOT) if one.query.name == name)
    kept = {
        date: RetainedDay(
            *np.array([(count, total, total // count) for count, total in users], np.int64).reshape(-1, 3).T
        )
        for date, users in days.items()
    }
    return query_release_of(asked, Calendar(of), cell, kept, Scripted(draws))


def releases() -> Iterator[tuple[str, Release | TrackerRelease | ContinualRelease]]:
    """Every status, under both relations."""
    for relation, of, draws in (("replace", SPEED, (-441,)), ("add_remove", PRESENCE, (90_009, 7))):
        few = [] if relation == "add_remove" else CROWD[:9]
        calendar = Calendar(of)
        yield f"{relation}_released", released(of, CROWD, *draws)
        yield f"{relation}_suppressed", released(of, few, 0, 0)
        yield (
            f"{relation}_budget_exhausted",
            undrawn_release(of, calendar, f"{DATE}/{SLOT}", CELL, Status.BUDGET_EXHAUSTED),
        )
        yield f"{relation}_incomplete", undrawn_release(of, calendar, f"{DATE}/{SLOT}", CELL, Status.INCOMPLETE)
    yield "replace_released_remainder", released(MIXED, CROWD, -441, cell=COARSE)
    yield "replace_released_finer", released(MIXED, CROWD, -441)
    yield "devices_released", blended(DEVICES, CROWD, [31_001, -41_250, 77_503], -441)
    yield "devices_gaussian_released", blended(GAUSSIAN, CROWD, [31_001, -41_250, 77_503], -441)
    yield "devices_alone_released", blended(ALONE, CROWD, [21_007 + 3_001 * device for device in range(12)])
    yield "devices_separate_released", blended(SEPARATE, CROWD, [21_021 + 1_001 * device for device in range(32)], -441)
    yield "devices_suppressed", blended(DEVICES, CROWD[:3], [31_000])
    yield (
        "values_released",
        released(VALUES, [(60, 1_800_000 + 71_001 * bus, 50_000_000) for bus in range(24)], -441, 37),
    )
    yield "value_released", released(DELAY, CROWD, -441)
    yield "value_suppressed", released(DELAY, CROWD[:9])
    yield "journey_released", released(JOURNEY, CROWD, -441)
    yield "values_suppressed", released(VALUES, [(60, 1_800_000, 0)] * 9)
    yield from tracked()
    yield from running_sums()


def answers() -> Iterator[tuple[str, QueryRelease]]:
    """Every kind, status and reason, under both relations."""
    both = {DATE: CROWD[:20], NEXT_DATE: CROWD}
    yield "replace_released", answered(SPEED, "two-days", both, 1_234)
    yield "replace_released_day_missing", answered(SPEED, "over-50", {DATE: CROWD}, 2_125)
    yield "replace_too_few_user_days", answered(SPEED, "two-days", {DATE: CROWD[:5], NEXT_DATE: CROWD[:3]})
    yield "replace_missing_days", answered(SPEED, "two-days", {DATE: CROWD})
    yield "replace_not_requested", answered(REQUESTED, "over-50", both)
    yield "replace_budget_exhausted", answered(SPEED, "two-days", both, 1_234).exhausted()
    yield "replace_released_remainder", answered(MIXED, "over-50", {DATE: CROWD}, 1_125, cell=COARSE)
    yield "value_released", answered(DELAY, "two-days", both, 1_234)
    yield "journey_released", answered(JOURNEY, "two-days", both, 1_234)
    yield "value_released_over_threshold", answered(DELAY, "over-50", both, 9_125)
    yield "add_remove_released", answered(PRESENCE, "over-50", {DATE: CROWD}, 1_125)
    yield "add_remove_missing_days", answered(PRESENCE, "over-50", {})
    yield "add_remove_budget_exhausted", answered(PRESENCE, "over-50", {DATE: CROWD}, 0).exhausted()


def summary(of: Policy, hats: int, total: Total | None = None) -> DaySummary:
    """A day's ledger after so many releases and what its queries reserve."""
    day, total = DayLedger(), total or Total()
    day.reserve_if_room(of, reservations(of, DATE), total)
    for hat in range(hats):
        assert day.charge_if_room(of, f"{CELL}/{hat}", of.epsilon_nano, total)
    own = day.policies.get(of.name)
    return DaySummary(
        releases=hats,
        epsilon_sum=hats * of.epsilon_nano,
        epsilon_user_day=day.cost,
        shared=False,
        limit=day.limit,
        sequence=hats,
        levels=day.levels,
        total=total,
        policy_levels=day.policy_levels(of.name),
        queries={} if own is None else own.queries,
    )


def budgets() -> Iterator[tuple[str, Policy, DaySummary, Spent | None]]:
    """A day of plain releases, of queries, of a successor, of unit `user`, and of a tracker; of both relations."""
    plain = policy("surat-speed")
    yield "replace", plain, summary(plain, 3), None
    yield "replace_with_queries", SPEED, summary(SPEED, 3), None
    successor = policy("surat-speed-2", replaces="surat-speed", **{"from": DATE})
    yield "replace_successor", successor, summary(successor, 0), None
    user = policy("surat-user", privacy={"unit": "user", "total_limit": 3200.5})
    yield "replace_unit_user", user, summary(user, 3, Total(40 * 10**9, user.total_limit_nano)), None
    yield "add_remove", PRESENCE, summary(PRESENCE, 1), None
    yield "replace_tracker", TRACKER, summary(TRACKER, 0), (1_500_000_000, 731_500_000.4)


def estimates() -> Iterator[tuple[str, EstimateRecord]]:
    """Every stage: of one cell with a release in the first slot of the day, and of one in the last."""
    value = numbered(released(SPEED, CROWD, -441).record(NOW_MS), 4711)
    first = msgspec.json.decode(value, type=ReleaseRecord)
    other = {"cell": "87608b0d3ffffff", "slot": "20:00"}
    times = {"start": f"{DATE}T20:00:00+05:30", "end": f"{DATE}T21:00:00+05:30"}
    for estimate in estimates_of(SPEED, [first, msgspec.structs.replace(first, **other, **times)]):
        if estimate.cell == CELL:
            yield estimate.stage, estimate
    delays = numbered(released(DELAY, CROWD, -441).record(NOW_MS), 4711)
    for estimate in estimates_of(DELAY, [msgspec.json.decode(delays, type=ReleaseRecord)]):
        yield f"{estimate.stage}_value", estimate
    journeys = numbered(released(JOURNEY, CROWD, -441).record(NOW_MS), 4711)
    for estimate in estimates_of(JOURNEY, [msgspec.json.decode(journeys, type=ReleaseRecord)]):
        yield f"{estimate.stage}_journey", estimate
    rest = numbered(released(MIXED, CROWD, -441, cell=COARSE).record(NOW_MS), 4711)
    for estimate in estimates_of(MIXED, [msgspec.json.decode(rest, type=ReleaseRecord)]):
        yield f"{estimate.stage}_remainder", estimate
    # From 11 o'clock on far below what is then expected: an alarm of this hexagon, beside another one, and elsewhere.
    cells = {9: [CELL, h3.grid_ring(CELL, 1)[0], h3.grid_ring(CELL, 9)[0]], 10: [CELL], 11: [CELL], 12: [CELL]}
    slots = [
        {
            "release_id": f"{SPEED.name}/{DATE}T{hour:02}:00/{cell}",
            "cell": cell,
            "slot": f"{hour:02}:00",
            "start": f"{DATE}T{hour:02}:00:00+05:30",
            "end": f"{DATE}T{hour + 1:02}:00:00+05:30",
            "raw": 45.0 if hour < 11 else 5.0,
            "noise": NoiseRecord(kind="laplace", scale=1.0),
        }
        for hour in cells
        for cell in cells[hour]
    ]
    for estimate in estimates_of(SPEED, [msgspec.structs.replace(first, **slot) for slot in slots]):
        if estimate.alarm is not None:
            yield f"alarm_{estimate.alarm}", estimate


def goldens() -> dict[str, bytes]:
    """`RECORD/CASE.json` -> the file's content."""
    telemetry = TOPICS.telemetry
    found: dict[str, bytes] = {}

    def keep(name: str, case: str, key: str | None, value: bytes, headers: Headers) -> None:
        told = {header: text.decode() for header, text in headers}
        found[f"{name}/{case}.json"] = Golden(key=key, headers=told, value=msgspec.Raw(value)).text()

    for case, reading in readings():
        keep("telemetry", case, reading.vehicle, canonical_value(Recorded(b"", reading, NOW_MS)), [])
    keep("report", "replace", REPORT.id, msgspec.json.encode(REPORT), [])
    device = Device(1, certified=DATE)
    keep(
        "report", "signed", device.id, device.sign(report_of(device, REPORT.policy_id, CELL, date=DATE, slot=SLOT)), []
    )
    made: list[tuple[str, int, Iterator[tuple[str, Any]]]] = [
        ("release", NOW_MS, releases()),
        ("query", NEXT_MS, answers()),
    ]
    for name, at_ms, cases in made:
        for case, release in cases:
            value = numbered(release.record(at_ms), 4711)
            keep(
                name, case, release.release_id, value, release_event(release.release_id, telemetry, HEAD.decode(value))
            )
    for case, of, day, spent in budgets():
        message = budget_message(TOPICS, of, DATE, day, spent=spent)
        keep("budget", case, message.key.decode(), message.value, message.headers)
    inferred = [("estimate", case, estimate_message(TOPICS, each, 8)) for case, each in estimates()]
    inferred += [
        ("running", case, running_message(TOPICS, each, 8))
        for case, each in running_means(SPEED, DELAY, MIXED, JOURNEY, CELL)
    ]
    for name, case, message in inferred:
        keep(name, case, message.key.decode(), message.value, message.headers)
    for case, key, value in clusterings(DEVICES, DATE, NOW_MS):
        keep("clusters", case, key, value, cloud_event("clusters", key, telemetry))
    for case, answer in cluster_answers(DEVICES, REPORT.id):
        keep("cluster-answer", case, answer.id, encode(answer), [])
    for reason in Reason:
        letter = DeadLetter(telemetry, 3, 4711, reason)
        headers = cloud_event("dead-letter", letter.event_id, telemetry)
        keep("dead-letter", reason.value, None, msgspec.json.encode(letter), headers)
    return found


def readings() -> Iterator[tuple[str, Reading]]:
    """As hatcast's own feeds send them: each type of time, each unit."""
    yield "iso", READING
    yield "epoch_ms", msgspec.structs.replace(READING, time=1_641_095_983_000, unit="m/s")
    yield "epoch_ms_float", msgspec.structs.replace(READING, time=1_641_095_983_000.5, unit="mph")
    yield "knots", msgspec.structs.replace(READING, unit="kn")
    place = READING.vehicle, READING.time, READING.lat, READING.lon
    yield "value", ValueReading(*place, -12.5, "s")
