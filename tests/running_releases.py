"""Releases of several days for tests of running means: HATs are missing or suppressed, slots have no record at all."""

from datetime import date, timedelta

import msgspec
import numpy as np

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.records import CountsRecord, NoiseRecord, ReleaseRecord

CELLS = [f"8760a000{n:x}ffffff" for n in range(4)]


def releases(policy: Policy, first: str, days: int, seed: int) -> list[ReleaseRecord]:
    """Releases of so many days."""
    random = np.random.default_rng(seed)  # simulation
    calendar, made = Calendar(policy), []
    for number in range(days):
        day = (date.fromisoformat(first) + timedelta(days=number)).isoformat()
        for slot in calendar.slots_of(day):
            if slot.outside is not None or random.random() < 0.3:
                continue
            for at, cell in enumerate(CELLS):
                if random.random() < 0.4 + 0.15 * at:
                    continue
                start, end = (calendar.local(ms).isoformat() for ms in (slot.start_ms, slot.end_ms))
                record = ReleaseRecord(
                    release_id=f"{policy.name}/{day}T{slot.name}/{cell}",
                    policy_id=policy.policy_id,
                    status="suppressed",
                    cell=cell,
                    date=day,
                    slot=slot.name,
                    start=start,
                    end=end,
                    estimator=policy.estimator,
                    epsilon=1.0,
                    relation=policy.relation.value,
                    released_at="2022-01-02T04:35:03.120Z",
                )
                if random.random() < 0.8:
                    raw, scale = round(float(random.normal(25, 8)), 3), round(float(random.uniform(0.5, 6)), 3)
                    counts = CountsRecord(users=4, readings=int(random.integers(4, 90)), squares=0.3)
                    record = msgspec.structs.replace(
                        record,
                        status="released",
                        raw=raw,
                        noise=NoiseRecord(kind="laplace", scale=scale),
                        interval95=(raw - 3 * scale, raw + 3 * scale),
                        counts=counts if policy.relation is Relation.REPLACE else None,
                    )
                made.append(record)
    return made
