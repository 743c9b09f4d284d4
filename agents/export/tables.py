"""Columns of exported records: the fields that analyses use, and the record itself as JSON."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from types import MappingProxyType
from typing import Any, Final

import msgspec
import pyarrow as pa

from hatcast.stream.records.estimates import ESTIMATE, EstimateRecord, NormalRecord
from hatcast.stream.records.fields import is_settlement
from hatcast.stream.records.queries import QUERY, QueryRecord
from hatcast.stream.records.releases import RELEASE, ReleaseRecord

Row = dict[str, Any]

_TIME: Final = pa.timestamp("ms", tz="UTC")
_PLACE: Final = (
    ("policy", pa.string()),
    ("policy_id", pa.string()),
    ("cell", pa.string()),
    ("remainder", pa.bool_()),
    ("date", pa.date32()),
    ("slot", pa.string()),
    ("start", _TIME),
    ("end", _TIME),
)
_VALUE: Final = (
    ("mean", pa.float64()),
    ("low", pa.float64()),
    ("high", pa.float64()),
    ("raw", pa.float64()),
    ("unit", pa.string()),
    ("noise", pa.string()),
    ("noise_scale", pa.float64()),
)


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of exported record.

    key           the column that identifies a record; records with an equal key are one row
    keeps_last    whether a later record of a key replaces an earlier one; otherwise they are equal byte for byte
    decode        returns the row of a record; None if it is not a record of this kind
    """

    name: str
    key: str
    keeps_last: bool
    schema: pa.Schema
    decode: Callable[[bytes], Row | None]


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*columns, ("record", pa.string())])


def _place(record: ReleaseRecord | EstimateRecord | QueryRecord, key: str) -> Row:
    return {
        "policy": key.partition("/")[0],
        "policy_id": record.policy_id,
        "cell": record.cell,
        "remainder": record.remainder is not None,
        "date": date.fromisoformat(record.date),
        "slot": record.slot,
        "start": datetime.fromisoformat(record.start),
        "end": datetime.fromisoformat(record.end),
    }


def _value(record: ReleaseRecord | QueryRecord) -> Row:
    low, high = record.interval95 or (None, None)
    scale = getattr(record.noise, "scale", None)
    return {
        "mean": record.mean,
        "low": low,
        "high": high,
        "raw": record.raw,
        "unit": record.unit,
        "noise": getattr(record.noise, "kind", None),
        "noise_scale": None if scale is None else float(scale),
    }


def _release(value: bytes) -> Row:
    record = RELEASE.decode(value)
    counts = record.counts
    return {
        "release_id": record.release_id,
        "status": record.status,
        "settlement": is_settlement(record.release_id),
        **_place(record, record.release_id),
        **_value(record),
        "users": None if counts is None else counts.users,
        "readings": None if counts is None else counts.readings,
        "estimator": record.estimator,
        "epsilon": record.epsilon,
        "relation": record.relation,
        "released_at": datetime.fromisoformat(record.released_at),
    }


def _estimate(value: bytes) -> Row:
    record = ESTIMATE.decode(value)
    return {
        "estimate_id": record.estimate_id,
        "stage": record.stage,
        **_place(record, record.estimate_id),
        "unit": record.unit,
        **_normal("road", record.road),
        **_normal("mean", record.mean),
        "residual_z": record.residual_z,
    }


def _normal(name: str, normal: NormalRecord | None) -> Row:
    if normal is None:
        return {name: None, f"{name}_sd": None, f"{name}_low": None, f"{name}_high": None}
    low, high = normal.interval95
    return {name: normal.value, f"{name}_sd": normal.sd, f"{name}_low": low, f"{name}_high": high}


def _answer(value: bytes) -> Row:
    record = QUERY.decode(value)
    return {
        "release_id": record.release_id,
        "status": record.status,
        "reason": record.reason,
        "query": record.query,
        "kind": record.kind,
        "speed_limit": record.speed_limit,
        **_place(record, record.release_id),
        "first_date": date.fromisoformat(record.first_date),
        "last_date": date.fromisoformat(record.last_date),
        "days": record.days,
        "days_used": record.days_used,
        **_value(record),
        "epsilon": record.epsilon,
        "relation": record.relation,
        "released_at": datetime.fromisoformat(record.released_at),
    }


def _decoder(row_of: Callable[[bytes], Row]) -> Callable[[bytes], Row | None]:
    def decode(value: bytes) -> Row | None:
        try:
            return row_of(value) | {"record": value.decode()}
        except (msgspec.MsgspecError, ValueError):
            return None

    return decode


_NUMBERS: Final = tuple(
    (f"{name}{end}", pa.float64()) for name in ("road", "mean") for end in ("", "_sd", "_low", "_high")
)
_PAID: Final = (("epsilon", pa.float64()), ("relation", pa.string()), ("released_at", _TIME))

TABLES: Final[Mapping[str, Table]] = MappingProxyType(
    {
        "means": Table(
            name="releases",
            key="release_id",
            keeps_last=False,
            schema=_schema(
                ("release_id", pa.string()),
                ("status", pa.string()),
                ("settlement", pa.bool_()),
                *_PLACE,
                *_VALUE,
                ("users", pa.int64()),
                ("readings", pa.int64()),
                ("estimator", pa.string()),
                *_PAID,
            ),
            decode=_decoder(_release),
        ),
        "estimates": Table(
            name="estimates",
            key="estimate_id",
            keeps_last=True,
            schema=_schema(
                ("estimate_id", pa.string()),
                ("stage", pa.string()),
                *_PLACE,
                ("unit", pa.string()),
                *_NUMBERS,
                ("residual_z", pa.float64()),
            ),
            decode=_decoder(_estimate),
        ),
        "queries": Table(
            name="answers",
            key="release_id",
            keeps_last=False,
            schema=_schema(
                ("release_id", pa.string()),
                ("status", pa.string()),
                ("reason", pa.string()),
                ("query", pa.string()),
                ("kind", pa.string()),
                ("speed_limit", pa.float64()),
                *_PLACE,
                ("first_date", pa.date32()),
                ("last_date", pa.date32()),
                ("days", pa.int64()),
                ("days_used", pa.int64()),
                *_VALUE,
                *_PAID,
            ),
            decode=_decoder(_answer),
        ),
    }
)
"""By key of `[topics]`."""
