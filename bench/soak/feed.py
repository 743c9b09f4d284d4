"""Feed that stays ahead of a worker: it repeats ten minutes of the city, each time dated ten minutes later."""

import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Final

from bench.city import DELAY_MS, KEYS, OFFSET, Sent, reports
from bench.produce import RecordedProducer
from bench.settings import PARTITIONS
from hatcast.agents.config.settings import load_settings
from hatcast.agents.redis.keys import PartitionKeys
from tests.services import RedisServer

LOOP_S: Final = 600
AHEAD: Final = 400_000  # records that the worker has not folded yet, at most
LOOK: Final = 20_000
START: Final = datetime(2022, 1, 2, 0, 0, tzinfo=OFFSET)


def main() -> None:
    """Feed until SIGTERM. Arguments: configuration, Redis URL."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = load_settings(Path(sys.argv[1]))
    redis = RedisServer(sys.argv[2], "given").client()
    keys = [PartitionKeys(settings.policy.name, partition).state for partition in range(PARTITIONS)]
    loop = [(r.vehicle, r.second, r.head, r.tail) for r in takewhile(lambda r: r.second < LOOP_S, reports())]
    sender = RecordedProducer(settings.kafka.bootstrap_servers)
    topic, sent, start = settings.topics.telemetry, 0, START
    while True:
        second, text, arrival = -1, b"", 0
        for vehicle, at, head, tail in loop:
            if at != second:
                second = at
                instant = start + timedelta(seconds=at)
                text = instant.isoformat().encode()
                arrival = (instant - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1) + DELAY_MS
            sender.send(topic, Sent(KEYS[vehicle], arrival, head + text + tail))
            sent += 1
            if sent % LOOK == 0:
                while sent - sum(int(redis.hget(key, "offset") or 0) for key in keys) > AHEAD:
                    time.sleep(0.05)
        start += timedelta(seconds=LOOP_S)


if __name__ == "__main__":
    main()
