"""Signed reports: what a device signed is genuine, and whatever differs from it in one bit is not."""

import hashlib
from decimal import Decimal

import h3.api.basic_str as h3
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nacl import bindings
from nacl.signing import SigningKey, VerifyKey

from hatcast.stream.hybrid import DeviceReport, decode_report, encode_report
from hatcast.stream.hybrid.reports import ReportKeys, device_id
from hatcast.stream.hybrid.signatures import ReportVerifier, certify, public_key
from tests.signing import AUTHORITY, DATE, Device, report_of, seed_of

POLICY_ID = "b2:" + "0123456789abcdef" * 2
CELL = h3.latlng_to_cell(21.2, 72.8, 7)
KEYS = ReportKeys(frozenset({public_key(AUTHORITY)}))
DEVICE, OTHER = Device(1), Device(2)
SIGNED = DEVICE.sign(report_of(DEVICE, POLICY_ID, CELL))

devices = st.builds(Device, st.integers(0, 50))
values = st.decimals(-5_000, 5_000, places=3)
slots = st.sampled_from(["00:00", "12:00", "23:45"])


def is_genuine(raw: bytes, keys: ReportKeys = KEYS) -> bool:
    """As the fold asks: of what can be decoded."""
    report = decode_report(raw)
    return report is not None and ReportVerifier(keys).is_genuine(raw, report)


@given(devices, values, slots)
def test_what_a_certified_device_signs_is_genuine_and_reads_as_it_was(
    device: Device, value: Decimal, slot: str
) -> None:
    report = report_of(device, POLICY_ID, CELL, value=value, slot=slot)
    signed = device.sign(report)
    assert is_genuine(signed)
    assert decode_report(signed) == report
    assert device.sign(report) == signed  # a function of what is sent and of the key: nothing else can be in it


def test_a_report_with_any_bit_changed_is_not_genuine() -> None:
    for byte in range(len(SIGNED)):
        changed = [SIGNED[:byte] + bytes([SIGNED[byte] ^ 1 << bit]) + SIGNED[byte + 1 :] for bit in range(8)]
        assert [is_genuine(raw) for raw in changed] == [False] * 8, byte


@given(st.integers(0, len(SIGNED)), st.integers(0, 40), st.binary(max_size=40))
@example(len(SIGNED), 0, b" ")
@example(len(SIGNED) - 1, 0, b',"value":99.5')
@example(1, 0, b'"value":99.5,')
def test_a_report_with_bytes_cut_out_or_put_in_is_not_genuine(at: int, cut: int, put_in: bytes) -> None:
    changed = SIGNED[:at] + put_in + SIGNED[at + cut :]
    assert is_genuine(changed) == (changed == SIGNED)


@given(devices, devices, values, values)
def test_a_signature_is_valid_for_one_report_of_one_device(
    one: Device, other: Device, value: Decimal, other_value: Decimal
) -> None:
    signed = one.sign(report_of(one, POLICY_ID, CELL, value=value))
    foreign = other.sign(report_of(other, POLICY_ID, CELL, value=other_value))
    swapped = signed[:-130] + foreign[-130:]  # the digits of its signature
    assert is_genuine(swapped) == (swapped == signed)
    assert is_genuine(other.sign(report_of(one, POLICY_ID, CELL, value=value))) == (one == other)


@pytest.mark.parametrize(
    ("device", "keys"),
    [
        (Device(1, authority=seed_of("another authority")), KEYS),
        (Device(1, authority=DEVICE.seed), KEYS),  # certified by itself
        (Device(1, certified="2022-01-03"), KEYS),
        (DEVICE, ReportKeys(frozenset({public_key(seed_of("another authority"))}))),
        (DEVICE, ReportKeys(KEYS.authorities, frozenset({DEVICE.key}))),
    ],
    ids=["another authority", "itself", "another date", "an authority that was removed", "a revoked key"],
)
def test_a_key_without_a_valid_certificate_signs_nothing(device: Device, keys: ReportKeys) -> None:
    assert not is_genuine(device.sign(report_of(device, POLICY_ID, CELL)), keys)


def test_with_two_authorities_the_devices_of_both_are_genuine() -> None:
    second = seed_of("another authority")
    keys = ReportKeys(KEYS.authorities | {public_key(second)}, frozenset({OTHER.key}))
    for device in (DEVICE, Device(3, authority=second)):
        assert is_genuine(device.sign(report_of(device, POLICY_ID, CELL)), keys)


def test_a_certificate_that_was_valid_once_is_checked_again_for_another_date_and_after_a_revocation() -> None:
    """The verifier keeps certificates that it has checked: for their date, and never against a revocation."""
    verifier, revoking = ReportVerifier(KEYS), ReportVerifier(ReportKeys(KEYS.authorities, frozenset({DEVICE.key})))
    tomorrow = DEVICE.sign(report_of(DEVICE, POLICY_ID, CELL, date="2022-01-03"))
    for raw, genuine in ((SIGNED, True), (SIGNED, True), (tomorrow, False), (SIGNED, True)):
        report = decode_report(raw)
        assert report is not None
        assert verifier.is_genuine(raw, report) is genuine
        assert not revoking.is_genuine(raw, report)


def test_an_unsigned_report_and_another_version_of_the_signature_are_not_genuine() -> None:
    assert not is_genuine(encode_report(report_of(DEVICE, POLICY_ID, CELL)))
    assert not is_genuine(SIGNED.replace(b'"ed25519:', b'"ed25520:'))
    assert not is_genuine(SIGNED.replace(b'"ed25519:', b'"ed448:'))


def by_hand(body: bytes, key: str, certificate: str, purpose: bytes = b"hatcast-report/1\n") -> bytes:
    """What `DEVICE` signs, by the specification (docs/specification/topics.md, Signed reports)."""
    head = body[:-1] + b',"key":"%s","certificate":"%s"' % (key.encode(), certificate.encode())
    return head + b',"signature":"ed25519:%s"}' % SigningKey(DEVICE.seed).sign(purpose + head).signature.hex().encode()


BODY, KEY = encode_report(report_of(DEVICE, POLICY_ID, CELL)), DEVICE.key.hex()
CERTIFICATE = DEVICE.day_key.certificate.hex()


def test_a_report_is_signed_as_the_specification_says_and_for_no_other_purpose() -> None:
    assert by_hand(BODY, KEY, CERTIFICATE) == SIGNED
    for purpose in (b"", b"hatcast-report/2\n", b"hatcast-report/1", b"hatcast-day-key/1\n"):
        assert not is_genuine(by_hand(BODY, KEY, CERTIFICATE, purpose))


@pytest.mark.parametrize(
    ("key", "certificate"),
    [
        (KEY + "\\n", CERTIFICATE),
        (KEY, CERTIFICATE + "\\n"),
        (KEY.upper(), CERTIFICATE),
        (KEY, CERTIFICATE.upper()),
        (f"{KEY[:2]} {KEY[2:]}", CERTIFICATE),
        (KEY, CERTIFICATE[:-2]),
    ],
)
def test_keys_and_certificates_have_one_spelling_even_if_their_device_has_signed_another(
    key: str, certificate: str
) -> None:
    assert not is_genuine(by_hand(BODY, key, certificate))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("field", "own", "others"),
    [
        ("id", DEVICE.id, OTHER.id),
        ("date", DATE, "2022-01-03"),
        ("key", KEY, OTHER.key.hex()),
        ("certificate", CERTIFICATE, OTHER.day_key.certificate.hex()),
    ],
)
def test_a_device_that_names_a_field_twice_sends_under_no_other_id_or_date(
    field: str, own: str, others: str, *, first: bool
) -> None:
    twice = b'{"%s":"%s",' % (field.encode(), others.encode()) + BODY[1:]
    if not first:
        twice = BODY[:-1] + b',"%s":"%s","%s":"%s"}' % tuple(each.encode() for each in (field, own, field, others))
    raw = by_hand(twice, KEY, CERTIFICATE)
    report = decode_report(raw)
    assert report is not None
    assert is_genuine(raw) == ((report.id, report.date) == (DEVICE.id, DATE))


def test_a_key_outside_of_the_prime_order_group_signs_nothing_although_ed25519_can_be_made_to_verify_for_it() -> None:
    """Otherwise it could not be revoked: such a line of the file is an error."""
    order_two = bytes([0xEC, *[0xFF] * 30, 0x7F])
    secret = bindings.crypto_core_ed25519_scalar_reduce(hashlib.sha512(b"secret").digest())
    key = bindings.crypto_core_ed25519_add(bindings.crypto_scalarmult_ed25519_base_noclamp(secret), order_two)
    certificate = certify(AUTHORITY, DATE, key)
    body = encode_report(report_of(DEVICE, POLICY_ID, CELL, id=device_id(key)))
    head = body[:-1] + b',"key":"%s","certificate":"%s"' % (key.hex().encode(), certificate.hex().encode())
    message, signature = b"hatcast-report/1\n" + head, None
    for number in range(100):  # a half of them verify
        nonce = bindings.crypto_core_ed25519_scalar_reduce(hashlib.sha512(b"%d" % number).digest())
        point = bindings.crypto_scalarmult_ed25519_base_noclamp(nonce)
        challenge = bindings.crypto_core_ed25519_scalar_reduce(hashlib.sha512(point + key + message).digest())
        response = bindings.crypto_core_ed25519_scalar_add(
            nonce, bindings.crypto_core_ed25519_scalar_mul(challenge, secret)
        )
        if not challenge[0] & 1:
            signature = point + response
            break
    assert signature is not None
    assert VerifyKey(key).verify(message, signature) == message
    assert not is_genuine(head + b',"signature":"ed25519:%s"}' % signature.hex().encode())


@pytest.mark.parametrize("wrong", [bytes(32), b"\xff" * 32, bytes([1, *[0] * 31])], ids=["zero", "high", "neutral"])
def test_an_authority_or_revoked_key_that_cannot_be_a_public_key_is_an_error(wrong: bytes) -> None:
    for keys in (ReportKeys(frozenset({wrong})), ReportKeys(KEYS.authorities, frozenset({wrong}))):
        with pytest.raises(ValueError, match="a key in it cannot be a public key"):
            ReportVerifier(keys)


@given(st.binary(max_size=900))
def test_no_bytes_make_the_check_fail(raw: bytes) -> None:
    report = DeviceReport(DEVICE.id, POLICY_ID, CELL, DATE, "12:00", Decimal(1), 0.5)
    verifier = ReportVerifier(KEYS)
    assert not any(verifier.is_genuine(each, report) for each in (raw, SIGNED[:400] + raw, raw + SIGNED[-153:]))
