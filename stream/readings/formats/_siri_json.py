"""SIRI deliveries in JSON: the raw bytes of their vehicle activities.

{"Siri": {"ServiceDelivery": {"VehicleMonitoringDelivery": [{"VehicleActivity": [..]}]}}}

The outer objects may be missing, and a list of one may be written as its only element: servers differ. Several
deliveries are one a line, or one after the other in any layout.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO, Final

import msgspec

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.readings.formats._json_values import concatenated
from hatcast.stream.readings.formats._recorded import BYTE_ORDER_MARK, WHITE_SPACE, lines
from hatcast.stream.readings.formats._siri_xml import NO_DELIVERY, REJECTED_DELIVERY, NotSiriError, SiriRecord

DELIVERY_BYTES_MAX: Final = 64 << 20  # of one delivery, or of a file without a delivery a line: to bound memory
_ABSENT: Final = msgspec.Raw()
_NULL: Final = b"null"


class _Delivery(msgspec.Struct):
    activities: msgspec.Raw = msgspec.field(name="VehicleActivity", default=_ABSENT)
    error: msgspec.Raw = msgspec.field(name="ErrorCondition", default=_ABSENT)
    delivered: object = msgspec.field(name="ResponseTimestamp", default=None)


class _Service(msgspec.Struct):
    deliveries: list[_Delivery] | _Delivery | None = msgspec.field(name="VehicleMonitoringDelivery", default=None)
    error: msgspec.Raw = msgspec.field(name="ErrorCondition", default=_ABSENT)
    delivered: object = msgspec.field(name="ResponseTimestamp", default=None)


class _Siri(msgspec.Struct):
    service: _Service = msgspec.field(name="ServiceDelivery")


class _Message(msgspec.Struct):
    siri: _Siri | None = msgspec.field(name="Siri", default=None)
    service: _Service | None = msgspec.field(name="ServiceDelivery", default=None)
    deliveries: list[_Delivery] | _Delivery | None = msgspec.field(name="VehicleMonitoringDelivery", default=None)
    activities: msgspec.Raw = msgspec.field(name="VehicleActivity", default=_ABSENT)
    error: msgspec.Raw = msgspec.field(name="ErrorCondition", default=_ABSENT)
    journey: msgspec.Raw = msgspec.field(name="MonitoredVehicleJourney", default=_ABSENT)


_read: Final = msgspec.json.Decoder(_Message).decode
_value: Final = msgspec.json.Decoder(msgspec.Raw).decode
_elements: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def json_records(body: bytes) -> list[SiriRecord] | None:
    """Return the records of one message; None if it lacks both a delivery and an activity. Raises nothing."""
    found: list[SiriRecord] = []
    is_siri = False
    for value in _values(body):
        records = _records_of(value)
        is_siri = is_siri or records is not None
        found += [SiriRecord(value, None)] if records is None else records
    return found if is_siri else None


def json_recording(stream: BinaryIO, head: bytes) -> Iterator[SiriRecord]:
    """Yield the records of a file. Values that are not SIRI are records, too.

    head   bytes already read from the stream
    Raises NotSiriError: a delivery is too large, or the file has none.
    """
    first = head + stream.readline(DELIVERY_BYTES_MAX)
    try:
        _value(first)
        bodies: Iterable[bytes] = chain((first,), lines(stream))
    except UNREADABLE:
        body = first + stream.read(DELIVERY_BYTES_MAX)
        if len(body) > DELIVERY_BYTES_MAX:
            raise NotSiriError(f"has a delivery of more than {DELIVERY_BYTES_MAX >> 20} MiB") from None
        bodies = (body,)
    is_siri = False
    for body in bodies:
        records = json_records(body)
        is_siri = is_siri or records is not None
        text = body.strip(WHITE_SPACE)
        yield from ([SiriRecord(text, None)] if text else []) if records is None else records
    if not is_siri:
        raise NotSiriError(NO_DELIVERY)


def _values(body: bytes) -> list[bytes]:
    """Return the JSON values of a message: one, the elements of an array, or several one after the other."""
    text = body.removeprefix(BYTE_ORDER_MARK).strip(WHITE_SPACE)
    try:
        return [bytes(each) for each in (_elements(text) if text[:1] == b"[" else (_value(text),))]
    except UNREADABLE:
        return concatenated(text)


def _records_of(value: bytes) -> list[SiriRecord] | None:
    """Return the records of a delivery, or an activity itself; None if the value is neither."""
    try:
        message = _read(value)
        if message.journey or message.error:
            return [SiriRecord(value, None)]
        if message.activities:
            return [SiriRecord(each, None) for each in _listed(message.activities)]
        service = message.service if message.siri is None else message.siri.service
        if service is None:
            service = _Service(message.deliveries)
            if message.deliveries is None:
                return None
        return list(_delivered(service))
    except UNREADABLE:
        return None


def _delivered(service: _Service) -> Iterator[SiriRecord]:
    deliveries = service.deliveries
    if _is_there(service.error):
        yield SiriRecord(REJECTED_DELIVERY, service.delivered)
    for delivery in deliveries if isinstance(deliveries, list) else () if deliveries is None else (deliveries,):
        delivered = service.delivered if delivery.delivered is None else delivery.delivered
        if _is_there(delivery.error):
            yield SiriRecord(REJECTED_DELIVERY, delivered)
        for activity in _listed(delivery.activities):
            yield SiriRecord(activity, delivered)


def _is_there(raw: msgspec.Raw) -> bool:
    return bytes(raw) not in (b"", _NULL)


def _listed(raw: msgspec.Raw) -> list[bytes]:
    """Return the elements of an array, or the only one that is written without an array."""
    if not _is_there(raw):
        return []
    return [bytes(each) for each in _elements(raw)] if bytes(raw).startswith(b"[") else [bytes(raw)]
