"""CPU of signed reports: what a device adds by signing, and a worker by checking."""

import hashlib
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

import h3.api.basic_str as h3
import msgspec

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.hybrid import DeviceReport, HybridParameters, encode_report
from hatcast.stream.hybrid.report_fold import GenuineReport, ReportFold
from hatcast.stream.hybrid.reports import DayKey, ReportKeys, device_id
from hatcast.stream.hybrid.signatures import ReportVerifier, certify, public_key, sign_report
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.vehicles import KEY_BYTES, Pseudonyms

_FAR: Final = 1 << 60
_HATS: Final = 5  # of a device in a slot


class SignedCosts(NamedTuple):
    """CPU of one report, microseconds.

    sign     signing, on the device
    fold     the worker's fold of an unsigned report, with its decoding
    first    what the check adds for a device's first report of a date, with its certificate
    further  what the check adds for each further one
    """

    sign: float
    fold: float
    first: float
    further: float


def signed_costs(policy: Policy, devices: int, morning_ms: int) -> SignedCosts:
    """Measure reports of `devices`, `_HATS` each, in the slot at `morning_ms`: unsigned, then signed."""
    slot = Calendar(policy).slot_at(morning_ms)
    authority = _seed(-1)
    keys = [DayKey(seed, certify(authority, slot.date, public_key(seed))) for seed in map(_seed, range(devices))]
    cells = sorted(h3.grid_disk(h3.latlng_to_cell(21.2, 72.8, policy.h3_resolution), 2))[:_HATS]
    epsilon = HybridParameters.of(policy).local_epsilon
    template = DeviceReport("", policy.policy_id, "", slot.date, slot.name, Decimal(30), epsilon)
    unsigned, signed = [], []
    sign_s = 0.0
    for cell in cells:
        for key in keys:
            name = device_id(public_key(key.seed))
            unsigned.append(encode_report(msgspec.structs.replace(template, id=name, cell=cell)))
        begun = time.process_time()
        signed.append([sign_report(body, key) for body, key in zip(unsigned[-devices:], keys, strict=True)])
        sign_s += time.process_time() - begun
    check = ReportVerifier(ReportKeys(frozenset({public_key(authority)}))).is_genuine
    plain, checking = _fold(policy, None), _fold(policy, check)
    fold_us = _us(plain, unsigned, slot.end_ms)
    first = _us(checking, signed[0], slot.end_ms)
    further = _us(checking, [raw for bodies in signed[1:] for raw in bodies], slot.end_ms)
    return SignedCosts(sign_s * 1e6 / len(unsigned), fold_us, first - fold_us, further - fold_us)


def _seed(number: int) -> bytes:
    return hashlib.blake2b(b"%d" % number, digest_size=KEY_BYTES).digest()


def _fold(policy: Policy, is_genuine: GenuineReport | None) -> ReportFold:
    return ReportFold(policy, Calendar(policy), FoldUsers(Pseudonyms(bytes(KEY_BYTES))), None, is_genuine)


def _us(fold: ReportFold, bodies: Sequence[bytes], at_ms: int) -> float:
    accepted = fold.outcomes["accepted"]
    begun = time.process_time()
    fold.apply(_FAR, [at_ms] * len(bodies), bodies)
    seconds = time.process_time() - begun
    if fold.outcomes["accepted"] - accepted != len(bodies):
        raise RuntimeError("the fold did not count every report")
    return seconds * 1e6 / len(bodies)
