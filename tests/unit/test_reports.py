"""The fold of devices' reports: which are taken, and what is kept of them."""

import json
from decimal import Decimal
from typing import Any

import h3.api.basic_str as h3
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.checkpoint import StoredPartition, restore, take_changes
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.hybrid import (
    HYBRID_KEYS,
    DeviceReport,
    HybridParameters,
    decode_report,
    encode_report,
    report_bound,
    steps_of,
)
from hatcast.stream.hybrid.report_fold import ReportFold, reports_of
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.readings.vehicles import by_murmur2
from tests.folding import HOUR, MINUTE, NOON, NOW, PSEUDONYMS
from tests.signing import Device, report_of

CELL = h3.latlng_to_cell(21.2, 72.8, 7)
OTHER_CELL = h3.latlng_to_cell(21.3, 72.8, 7)
OVER = NOON + HOUR  # 13:00 UTC: the slot 12:00 is over
CLOSED = OVER + 5 * MINUTE


def policy_of(**changes: Any) -> Policy:
    table = {
        "name": "hybrid",
        "upper_bound": 65.0,
        "timezone": "UTC",
        "hours": [0, 24],
        "privacy": {"epsilon": 1.0, "max_hats_per_day": 2, "daily_limit": 105.0, "local_epsilon": 0.5},
        "estimator": {"name": "pwh"},
    }
    return read_policy(table | changes, {**ESTIMATOR_KEYS, **HYBRID_KEYS}, lambda _: f'source = "public"\n{CELL}')


POLICY = policy_of()
PARAMETERS = HybridParameters.of(POLICY)


def device(number: int) -> str:
    return f"{number:032x}"


def made(number: int, value: Decimal) -> DeviceReport:
    return DeviceReport(device(number), POLICY.policy_id, CELL, "2022-01-02", "12:00", value, 0.5)


def sent(number: int = 1, **changes: Any) -> bytes:
    fields = {
        "id": device(number),
        "policy_id": POLICY.policy_id,
        "cell": CELL,
        "date": "2022-01-02",
        "slot": "12:00",
        "value": 31.5,
        "epsilon": 0.5,
    }
    return json.dumps(fields | changes).encode()


def fold_of(policy: Policy = POLICY, partition: int = 0, partitions: int = 1) -> ReportFold:
    return ReportFold(
        policy, Calendar(policy), FoldUsers(PSEUDONYMS), lambda name: by_murmur2(name, partitions) == partition
    )


def outcomes(records: list[tuple[int, bytes | None]], fold: ReportFold | None = None) -> dict[str, int]:
    fold = fold or fold_of()
    fold.apply(NOW, [arrival for arrival, _ in records], [value for _, value in records])
    return {outcome: count for outcome, count in fold.outcomes.items() if count}


def kept(fold: ReportFold) -> list[int]:
    """What a release would read of the one HAT."""
    chunks = take_changes(fold).chunks
    return sorted(reports_of(chunks.values(), PARAMETERS).tolist())


def test_an_honest_report_is_counted_once_with_its_own_value() -> None:
    fold = fold_of()
    assert outcomes([(OVER, sent(1)), (OVER, sent(2, value=-700.25)), (OVER, sent(1))], fold) == {
        "accepted": 2,
        "duplicate": 1,
    }
    assert kept(fold) == [-700_250, 31_500]


@pytest.mark.parametrize(
    ("cell", "outcome"),
    [
        (CELL, "accepted"),
        (h3.cell_to_parent(CELL), "accepted"),
        (OTHER_CELL, "outside_cells"),
        (h3.cell_to_center_child(CELL), "bad_place"),
    ],
)
def test_a_report_of_a_finer_cell_is_taken_only_if_it_is_listed(cell: str, outcome: str) -> None:
    policy = policy_of(resolutions=[6, 7], fine_cells="fine.txt")  # which lists CELL
    assert outcomes([(OVER, sent(cell=cell, policy_id=policy.policy_id))], fold_of(policy)) == {outcome: 1}


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"policy_id": "b2:" + "0" * 32}, "other_policy"),
        ({"epsilon": 0.4}, "bad_value"),
        ({"value": 31.5004}, "bad_value"),
        ({"value": 5_265.001}, "bad_value"),  # U + 40 U / epsilon is 5,265
        ({"value": 1e300}, "bad_value"),
        ({"value": "NaN"}, "bad_value"),
        ({"cell": "0" * 15}, "bad_place"),
        ({"cell": h3.cell_to_parent(CELL)}, "bad_place"),
        ({"slot": "12:30"}, "bad_time"),
        ({"date": "2022-02-30"}, "bad_time"),
        ({"slot": "13:00"}, "bad_time"),  # not over yet
        ({"slot": "11:00"}, "late"),
        ({"date": "1999-01-02"}, "late"),
        ({"id": "SURAT-BUS-42"}, "undecodable"),
        ({"slot": "12:00+05:30"}, "undecodable"),
        ({"cell": "not a cell at all"}, "undecodable"),
        ({"value": None}, "undecodable"),
        ({"epsilon": "much"}, "undecodable"),
    ],
)
def test_what_is_not_as_the_policy_says_is_rejected_and_counted(changes: dict[str, Any], outcome: str) -> None:
    fold = fold_of()
    assert outcomes([(OVER, sent(**changes))], fold) == {outcome: 1}
    assert kept(fold) == []


def test_the_widest_report_is_taken_and_can_be_read_again() -> None:
    fold = fold_of()
    assert outcomes([(OVER, sent(1, value=5_265.0)), (OVER, sent(2, value=-5_265.0))], fold) == {"accepted": 2}
    assert kept(fold) == [-5_265_000, 5_265_000] == [-report_bound(PARAMETERS), report_bound(PARAMETERS)]


def test_a_report_may_come_until_its_slot_closes_and_never_before_its_end() -> None:
    early = OVER - POLICY.max_ahead_ms
    assert outcomes([(early - 1, sent(1)), (early, sent(2)), (CLOSED - 1, sent(3)), (CLOSED, sent(4))]) == {
        "bad_time": 1,
        "accepted": 2,
        "late": 1,
    }


def test_ticks_and_garbage_move_the_clock_and_open_nothing() -> None:
    fold = fold_of()
    assert outcomes([(OVER, None), (OVER + 1, b"\xff{"), (OVER + 2, sent(date="1970-01-01"))], fold) == {
        "tick": 1,
        "undecodable": 1,
        "late": 1,
    }
    assert (fold.watermark, fold.slots, fold.periods) == (OVER + 2, {}, {})


def test_a_device_has_so_many_hats_a_day() -> None:
    cells = [CELL, OTHER_CELL, h3.latlng_to_cell(21.4, 72.8, 7)]
    assert outcomes([(OVER, sent(1, cell=cell)) for cell in cells]) == {"accepted": 2, "over_cap": 1}


def test_a_cell_that_is_not_listed_has_no_reports() -> None:
    policy = policy_of(cells="cells.txt")
    records: list[tuple[int, bytes | None]] = [
        (OVER, sent(1, policy_id=policy.policy_id)),
        (OVER, sent(2, policy_id=policy.policy_id, cell=OTHER_CELL)),
    ]
    assert outcomes(records, fold_of(policy)) == {"accepted": 1, "outside_cells": 1}


def test_a_report_in_a_wrong_partition_is_told_and_not_counted() -> None:
    ours = [number for number in range(8) if by_murmur2(device(number).encode(), 4) == 1]
    found = outcomes([(OVER, sent(number)) for number in range(8)], fold_of(partition=1, partitions=4))
    assert found == {"accepted": len(ours), "wrong_partition": 8 - len(ours)}


def test_a_report_of_more_than_2_kib_is_not_decoded() -> None:
    padded = [sent(1, x="0" * size) for size in (2_048 - len(sent(1, x="")), 2_049 - len(sent(1, x="")))]
    assert [len(each) for each in padded] == [2_048, 2_049]
    assert outcomes([(OVER, each) for each in padded]) == {"accepted": 1, "undecodable": 1}


def test_a_report_that_is_not_genuine_takes_nothing_from_its_device_and_opens_nothing() -> None:
    """Of one id: three forged reports that would fill the cap, and then the two that the device has signed."""
    genuine = [sent(1, value=20.5), sent(1, value=30.5, cell=OTHER_CELL)]
    fold = ReportFold(POLICY, Calendar(POLICY), FoldUsers(PSEUDONYMS), None, lambda raw, _: raw in genuine)
    forged = [sent(1, value=64.5), sent(1, cell=OTHER_CELL), sent(1, cell=h3.latlng_to_cell(21.4, 72.8, 7))]
    letters = fold.apply(NOW, [OVER] * 3, forged)
    assert letters == dict.fromkeys(range(3), "bad_signature")
    assert (fold.slots, fold.periods) == ({}, {})
    assert fold.apply(NOW, [OVER] * 3, [*genuine, genuine[0]]) == {}
    assert {name: count for name, count in fold.outcomes.items() if count} == {
        "bad_signature": 3,
        "accepted": 2,
        "duplicate": 1,
    }


def test_where_signatures_are_not_checked_a_signed_report_counts_as_any_other() -> None:
    device = Device(1)
    unsigned = report_of(device, POLICY.policy_id, CELL)
    assert outcomes([(OVER, device.sign(unsigned)), (OVER, sent(2))]) == {"accepted": 2}


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(-report_bound(PARAMETERS), report_bound(PARAMETERS))), max_size=150
    )
)
def test_a_state_that_was_stored_and_read_back_goes_on_as_if_nothing_had_happened(
    reports: list[tuple[int, int]],
) -> None:
    records: list[tuple[int, bytes | None]] = [
        (
            OVER,
            encode_report(
                DeviceReport(device(n), POLICY.policy_id, CELL, "2022-01-02", "12:00", Decimal(v) / 1000, 0.5)
            ),
        )
        for n, v in reports
    ]
    whole, first, second = fold_of(), fold_of(), fold_of()
    outcomes(records, whole)
    half = len(records) // 2
    outcomes(records[:half], first)
    changes = take_changes(first)
    stored = StoredPartition(
        watermark=changes.watermark,
        outcomes=changes.outcomes,
        hats={(slot, cell): [chunk] for (slot, cell, _), chunk in changes.chunks.items()},
        days={date: [chunk] for (date, _), chunk in changes.day_chunks.items()},
    )
    restore(second, stored)
    outcomes(records[half:], second)
    assert second.outcomes == whole.outcomes
    firsts: dict[int, int] = {}
    for number, value in reports:
        firsts.setdefault(number, value)
    assert kept(whole) == sorted(firsts.values())
    assert {user: (c.total, c.seen) for user, c in only_hat(second).items()} == {
        user: (c.total, c.seen) for user, c in only_hat(whole).items()
    }


def only_hat(fold: ReportFold) -> dict[bytes, Any]:
    hats = [hat for slot in fold.slots.values() for hat in slot.hats.values()]
    assert len(hats) <= 1
    return hats[0].users if hats else {}


@given(st.binary(max_size=200))
@example(sent().replace(b"{", b'{"x": ' + b"[" * 9999 + b"]" * 9999 + b", ", 1))
def test_no_bytes_are_too_broken_to_be_told(raw: bytes) -> None:
    assert decode_report(raw) is None
    fold = fold_of()
    assert sum(outcomes([(OVER, raw)], fold).values()) == 1


@given(st.integers(-report_bound(PARAMETERS), report_bound(PARAMETERS)))
def test_a_report_is_written_and_read_without_loss(steps: int) -> None:
    report = DeviceReport(
        device(3), POLICY.policy_id, CELL, "2022-01-02", "12:00", Decimal(PARAMETERS.grid.text(steps)), 0.5
    )
    read = decode_report(encode_report(report))
    assert read == report
    assert steps_of(read.value, PARAMETERS) == steps
