"""SIRI deliveries in XML and in JSON: the records of their vehicle activities.

XML is parsed piece by piece by lxml. DTDs are rejected, so entities are never expanded or fetched.

Each `VehicleActivity` becomes one small record in SIRI's JSON form, with the fields that `siri` decodes and no others.
So a record needs neither the namespaces nor the encoding of its delivery. Names are compared without namespace:
deliveries of SIRI 1.x and 2.x, inside a SOAP envelope and without a namespace are read alike.

JSON: {"Siri": {"ServiceDelivery": {"VehicleMonitoringDelivery": [{"VehicleActivity": [..]}]}}}. The outer objects may
be missing, and a list of one may be written as its only element: servers differ. Several deliveries are one a line, or
one after the other in any layout.

Memory, of XML: the elements of one chunk and of one incomplete record, at most `UNREAD_BYTES_MAX` of the file.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from hatcast.stream.errors import UNREADABLE, readable
from hatcast.stream.readings.formats._json_values import concatenated, is_value
from hatcast.stream.readings.formats._values import ABSENT, ABSENT_OR_NULL
from hatcast.stream.readings.formats.interface import BYTE_ORDER_MARK, WHITE_SPACE, lines

CHUNK_BYTES: Final = 1 << 16
UNREAD_BYTES_MAX: Final = 16 << 20  # of a file without the end of a record
_CARRIED: Final = 256  # bytes held back, in case that a boundary begins in them

# Several deliveries in one file: each begins with its XML declaration, or ends with </Siri>.
_boundary: Final = re.compile(rb"<\?xml[ \t\r\n]|</(?:[^<>/ \t\r\n]{1,64}:)?Siri[ \t\r\n]*>")
_MARKS: Final = (b"Siri", b"<?xml")  # of boundaries: a pattern is tried at each closing tag, for a tenth of the time
_encode: Final = msgspec.json.Encoder().encode

NO_DELIVERY: Final = "has no whole SIRI delivery"
REJECTED_DELIVERY: Final = b'{"ErrorCondition":{}}'
"""Record of a request that the server rejects, as for a wrong API key: undecodable, so that it is counted."""
DELIVERY_BYTES_MAX: Final = 64 << 20  # of one delivery, or of a file without a delivery a line: to bound memory


class SiriRecord(NamedTuple):
    """One record of a delivery."""

    raw: bytes  # JSON of a `VehicleActivity`, or `REJECTED_DELIVERY`
    delivered: object  # the delivery's `ResponseTimestamp`, as sent; None if it has none


class NotSiriError(Exception):
    """The bytes are not well-formed XML with SIRI deliveries, or exceed a limit."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason  # what is wrong, without data of the file


def _anywhere(*names: str) -> tuple[str, ...]:
    """Return lxml's patterns of elements with these names, in any namespace or in none."""
    return tuple(f"{{*}}{name}" for name in names)


_ACTIVITY: Final = "VehicleActivity"
_ERROR: Final = "ErrorCondition"
_DELIVERED: Final = "ResponseTimestamp"
_WATCHED: Final = _anywhere(_ACTIVITY, _ERROR, _DELIVERED, "VehicleMonitoringDelivery", "ServiceDelivery")
_JOURNEY: Final = "MonitoredVehicleJourney"
_LOCATION: Final = "VehicleLocation"
_FRAMED: Final = "FramedVehicleJourneyRef"
# Fields of an element, and whether they have fields.
_FIELDS: Final = {
    _ACTIVITY: {"RecordedAtTime": False, _JOURNEY: True},
    _JOURNEY: {_LOCATION: True, _FRAMED: True}
    | dict.fromkeys(("VehicleRef", "LocationRecordedAtTime", "Velocity", "Delay", "VehicleJourneyRef"), False),
    _FRAMED: {"DatedVehicleJourneyRef": False},
    _LOCATION: {"Longitude": False, "Latitude": False},
}
_FEW: Final = _anywhere(*_FIELDS[_JOURNEY])  # of many; of the others it is faster to look at all children


def xml_records(stream: BinaryIO, head: bytes = b"") -> Iterator[SiriRecord]:
    """Yield the records of one XML document, or of several that follow each other, in their order.

    head   bytes already read from the stream
    Raises NotSiriError for a cut-off document, one without a delivery, a DTD, or a limit, after the records before it.
    """
    document = _Document()
    for chunk, is_last in _documents(stream, head):
        yield from document.feed(chunk)
        if is_last:
            document.close()
            document = _Document()


def _documents(stream: BinaryIO, head: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the documents in pieces, each with True if it is the last piece of its document. At least one document."""
    buffer, is_new, any_document = head, True, False
    while True:
        chunk = stream.read(CHUNK_BYTES)
        buffer += chunk
        begin = 0
        for found in _boundary.finditer(buffer) if any(mark in buffer for mark in _MARKS) else ():
            end = found.start() if found[0].startswith(b"<?") else found.end()
            piece = buffer[begin:end]
            if not is_new or _stripped(piece):
                yield (_stripped(piece) if is_new else piece), True
                is_new = any_document = True
            begin = end
        buffer = buffer[begin:]
        if not chunk:
            break
        if (ready := len(buffer) - _CARRIED) > 0:
            piece = _stripped(buffer[:ready]) if is_new else buffer[:ready]
            if piece:
                yield piece, False
                is_new = False
            buffer = buffer[ready:]
    rest = _stripped(buffer) if is_new else buffer
    if rest or not is_new or not any_document:
        yield rest, True


def _stripped(piece: bytes) -> bytes:
    """Return the beginning of a document without white space and a byte order mark, which parsers reject."""
    return piece.lstrip(WHITE_SPACE).removeprefix(BYTE_ORDER_MARK).lstrip(WHITE_SPACE)


class _Document:
    """Incremental parser of one XML document."""

    def __init__(self) -> None:
        from lxml import etree  # noqa: PLC0415 - 20 ms, which only XML needs

        self._errors: type[Exception] = etree.XMLSyntaxError
        self._parser = etree.XMLPullParser(
            events=("end",),
            tag=_WATCHED,
            resolve_entities=False,
            load_dtd=False,
            no_network=True,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )
        self._is_siri = False
        self._delivered: str | None = None
        self._unread = 0

    def feed(self, chunk: bytes) -> list[SiriRecord]:
        """Parse a piece of the document; return the records that end in it. Raises NotSiriError."""
        try:
            self._parser.feed(chunk)
            found = self._records()
        except self._errors:
            raise NotSiriError("is not well-formed XML") from None
        self._unread += len(chunk)
        if self._unread > UNREAD_BYTES_MAX:
            raise NotSiriError(f"has more than {UNREAD_BYTES_MAX >> 20} MiB without a whole vehicle activity")
        return found

    def close(self) -> None:
        """End the document. Raises NotSiriError if it is cut off, or lacks a delivery."""
        try:
            self._parser.close()
        except self._errors:
            raise NotSiriError("is not well-formed XML, or cut off") from None
        if not self._is_siri:
            raise NotSiriError(NO_DELIVERY)

    def _records(self) -> list[SiriRecord]:
        found: list[SiriRecord] = []
        element = None
        for _, element in self._parser.read_events():
            if not self._is_siri:
                self._is_siri = True
                if element.getroottree().docinfo.internalDTD is not None:
                    raise NotSiriError("has a document type declaration, which SIRI does not have")
            name = _local(element.tag)
            if name == _ACTIVITY:
                found.append(SiriRecord(_encode(_content(element, name)), self._delivered))
            elif name == _ERROR:
                found.append(SiriRecord(REJECTED_DELIVERY, self._delivered))
            elif name == _DELIVERED:
                self._delivered = (element.text or "").strip() or None
        if element is not None:
            self._unread = 0
            _drop_before(element)
        return found


def _content(element: Any, name: str) -> dict[str, Any]:
    """Return the fields of an element. Those that are missing or empty are left out."""
    content: dict[str, Any] = {}
    fields = _FIELDS[name]
    for child in element.iterchildren(_FEW) if name == _JOURNEY else element:
        field = _local(child.tag)
        has_fields = fields.get(field)
        if has_fields:
            content[field] = _content(child, field)
        elif has_fields is not None and (text := child.text) and (text := text.strip()):
            content[field] = text
    return content


@lru_cache(maxsize=1024)
def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _drop_before(element: Any) -> None:
    """Remove everything before an element from the tree, and its own content: all of that was read."""
    element.clear()
    while (parent := element.getparent()) is not None:
        del parent[: parent.index(element)]
        element = parent


class _Delivery(msgspec.Struct):
    activities: msgspec.Raw = msgspec.field(name="VehicleActivity", default=ABSENT)
    error: msgspec.Raw = msgspec.field(name="ErrorCondition", default=ABSENT)
    delivered: object = msgspec.field(name="ResponseTimestamp", default=None)


class _Service(msgspec.Struct):
    deliveries: list[_Delivery] | _Delivery | None = msgspec.field(name="VehicleMonitoringDelivery", default=None)
    error: msgspec.Raw = msgspec.field(name="ErrorCondition", default=ABSENT)
    delivered: object = msgspec.field(name="ResponseTimestamp", default=None)


class _Siri(msgspec.Struct):
    service: _Service = msgspec.field(name="ServiceDelivery")


class _Message(msgspec.Struct):
    siri: _Siri | None = msgspec.field(name="Siri", default=None)
    service: _Service | None = msgspec.field(name="ServiceDelivery", default=None)
    deliveries: list[_Delivery] | _Delivery | None = msgspec.field(name="VehicleMonitoringDelivery", default=None)
    activities: msgspec.Raw = msgspec.field(name="VehicleActivity", default=ABSENT)
    error: msgspec.Raw = msgspec.field(name="ErrorCondition", default=ABSENT)
    journey: msgspec.Raw = msgspec.field(name="MonitoredVehicleJourney", default=ABSENT)


_read_message: Final = msgspec.json.Decoder(_Message).decode
_elements: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def json_records(body: bytes) -> list[SiriRecord] | None:
    """Return the records of one message; None if it lacks both a delivery and an activity. Raises nothing."""
    text = body.removeprefix(BYTE_ORDER_MARK).strip(WHITE_SPACE)
    array = readable(_elements, text)  # None: one value, or several one after the other
    values = concatenated(text) if array is None else list(map(bytes, array))
    found: list[SiriRecord] = []
    is_siri = False
    for value in values:
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
    bodies: Iterable[bytes]
    if is_value(first):
        bodies = chain((first,), lines(stream))
    else:
        body = first + stream.read(DELIVERY_BYTES_MAX)
        if len(body) > DELIVERY_BYTES_MAX:
            raise NotSiriError(f"has a delivery of more than {DELIVERY_BYTES_MAX >> 20} MiB")
        bodies = (body,)
    is_siri = False
    for body in bodies:
        records = json_records(body)
        is_siri = is_siri or records is not None
        text = body.strip(WHITE_SPACE)
        yield from ([SiriRecord(text, None)] if text else []) if records is None else records
    if not is_siri:
        raise NotSiriError(NO_DELIVERY)


def _records_of(value: bytes) -> list[SiriRecord] | None:
    """Return the records of a delivery, or an activity itself; None if the value is neither."""
    try:
        message = _read_message(value)
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
    if bytes(service.error) not in ABSENT_OR_NULL:
        yield SiriRecord(REJECTED_DELIVERY, service.delivered)
    for delivery in deliveries if isinstance(deliveries, list) else () if deliveries is None else (deliveries,):
        delivered = service.delivered if delivery.delivered is None else delivery.delivered
        if bytes(delivery.error) not in ABSENT_OR_NULL:
            yield SiriRecord(REJECTED_DELIVERY, delivered)
        for activity in _listed(delivery.activities):
            yield SiriRecord(activity, delivered)


def _listed(raw: msgspec.Raw) -> list[bytes]:
    """Return the elements of an array, or the only one that is written without an array."""
    if bytes(raw) in ABSENT_OR_NULL:
        return []
    return [bytes(each) for each in _elements(raw)] if bytes(raw).startswith(b"[") else [bytes(raw)]
