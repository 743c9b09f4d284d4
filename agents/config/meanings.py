"""What each key of hatcast.toml means, by table, in the order of the page. Keys, types and defaults are the types' own.

A key without a meaning here, or a meaning without a key, fails `python -m tools.configuration_reference --check`.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from hatcast.agents.config.settings import DisplayTable, KafkaTable, RedisTable, WorkerTable
from hatcast.agents.config.topics_table import TopicsTable
from hatcast.stream.policy.table import EstimatorTable, PolicyTable, PrivacyTable, QueryTable

TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "kafka": KafkaTable,
    "redis": RedisTable,
    "topics": TopicsTable,
    "worker": WorkerTable,
    "display": DisplayTable,
    "policy": PolicyTable,
    "policy.privacy": PrivacyTable,
    "policy.estimator": EstimatorTable,
    "policy.query": QueryTable,
}
# Keys of text that is a duration.
DURATIONS: Final = frozenset(
    {
        *("topics.telemetry_retention", "worker.checkpoint_interval", "worker.session_timeout", "worker.idle_after"),
        *("display.keep", "policy.slot_length", "policy.lateness", "policy.max_ahead", "policy.min_interval"),
    }
)
# Where the type says no default, and the code that reads it has one; or where it is needed in some cases only.
DEFAULTS: Final[Mapping[str, str]] = {
    "policy.privacy.total_limit": "required for unit `user`",
    "policy.privacy.min_users": "10",
    "policy.privacy.local_epsilon": "`epsilon`",
    "policy.estimator.grouping": '`"bestfit"`',
    "policy.estimator.array_length": "by estimator",
    "policy.estimator.quantiles": '`"fixed"`',
    "policy.estimator.weight_threshold": "20 x `array_length` / `epsilon`",
    "policy.estimator.noise": '`"laplace"`',
    "policy.estimator.sigma": "required where used",
    "policy.estimator.sigma_local": "`sigma`",
    "policy.estimator.mean_gap": "0",
    "policy.query.from": "`policy.from`",
    "policy.query.epsilon": "this or `scale`",
    "policy.query.scale": "this or `epsilon`",
    "policy.query.min_n": "required for `mean_speed`",
    "policy.query.speed_limit": "required for `over_speed_limit`",
}
_MORE_THAN_KEYS: Final = frozenset({"policy.privacy", "policy.estimator", "policy.query"})  # tables with a heading each

MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "kafka": {
        "bootstrap_servers": "comma-separated; `HATCAST_KAFKA_BOOTSTRAP_SERVERS` overrides it",
        "partitions": "of telemetry, when hatcast makes it",
        "security_protocol": "or `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`",
        "sasl_mechanism": "`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`, with `SASL_*`",
        "sasl_plain_username": "who hatcast is there",
        "sasl_plain_password_file": "a file with its password; or `HATCAST_KAFKA_PASSWORD`",
        "ssl_cafile": "PEM: who signs the brokers' certificates",
        "ssl_certfile": "PEM: hatcast's own certificate, where brokers want one",
        "ssl_keyfile": "PEM: its private key",
        "ssl_check_hostname": "whether a broker's name has to be that of its certificate",
    },
    "redis": {
        "url": "`rediss://` for TLS; `HATCAST_REDIS_URL` overrides it",
        "username": "who hatcast is there",
        "password_file": "a file with its password; or `HATCAST_REDIS_PASSWORD`",
        "ssl_ca_certs": "PEM, with `rediss://`: who signs the server's certificate",
        "ssl_certfile": "PEM: hatcast's own certificate, where the server wants one",
        "ssl_keyfile": "PEM: its private key",
    },
    "topics": {
        "prefix": 'stands before the name of every topic that is not written here, such as `"surat."`',
        "telemetry": "key = vehicle id in UTF-8; also the name of the budget's domain. Under `add_remove` with "
        "`message.timestamp.type = LogAppendTime`, so recordings cannot be replayed into it: use `batch --ledger`",
        "telemetry_format": "or another of [feeds.md](feeds.md): one reading a record",
        "telemetry_partitioner": "of whoever produces: `murmur2` (Java, aiokafka, kafka-python) or `crc32` "
        "(librdkafka)",
        "telemetry_retention": '72h or more, when hatcast makes it; `"none"` for recordings',
        "means": "output: the means of HATs",
        "queries": "output: answers to queries over days",
        "budget": "output: what each day has cost",
        "dead_letters": "output, for operators: what could not be read",
        "reports": "what devices send ([device.md](device.md)), where the estimator is [hybrid](hybrid.md); key = the "
        "device's id of the day. Made as telemetry is",
    },
    "worker": {
        "checkpoint_interval": "between checkpoints to Redis; 50ms to 60s",
        "session_timeout": "a killed worker's partitions move after this; 1s to 1800s",
        "idle_after": "a live partition without records is ticked after this",
        "user_key_file": "32 bytes in hexadecimal, also from `HATCAST_USER_KEY`; without it a key is made once and "
        "kept in Redis, or in the ledger file of `batch`",
        "listen": '`"127.0.0.1:9464"` serves `/livez`, `/readyz` and `/metrics` ([metrics.md](metrics.md)) there; '
        "without it nothing is served, so that several workers of one file start on one machine. Port 0 takes any "
        "that is free and logs it",
    },
    "display": {
        "listen": "where everybody may look; `--host` and `--port` override its parts",
        "keep": 'slots that ended longer before the newest one are forgotten; `"1h"` to `"32d"`. Memory grows with '
        "it: about 1 kB for each hexagon and slot",
        "title": "of the page",
    },
    "policy": {
        "name": "ASCII letters, digits, `-`, `_`, `.`",
        "replaces": "the policy that this one follows: [below](#a-new-policy)",
        "from": 'the local date (`"2022-02-01"`) from which it then counts and releases; with `replaces`, or neither',
        "upper_bound": "U, km/h; larger values count as U",
        "reject_above": 'km/h; larger still is a broken sensor. `"none"`: never',
        "drop_zero": "drop readings of exactly 0",
        "timezone": "such as `Asia/Kolkata`; a day is one there",
        "h3_resolution": "of the hexagons, 0 to 15",
        "slot_length": "divides a day into whole minutes",
        "hours": "local slots that start in [9, 21) are released",
        "lateness": "how long after its end a slot takes readings",
        "max_ahead": "a record dated further ahead of a worker's clock waits; feeds do not send it",
        "min_interval": "one reading a user, HAT and interval counts; at most 86,400 intervals a slot",
        "cells": 'or a file: first line `source = "public"`, `"survey"` or `"private"`, then one H3 index a line, '
        "remarks after `#` at the start of a line ([survey.md](survey.md) makes such files; a private one also says "
        'what it has cost, `epsilon = 1.0` and `days = "FIRST,LAST"`). Under `add_remove` a file with `source = '
        '"public"` is required',
        "grid": "km/h; releases are multiples of it",
    },
    "policy.privacy": {
        "unit": "one vehicle's readings of one local day; `user`: of all time ([privacy.md](privacy.md))",
        "relation": "what neighbours are: [privacy.md](privacy.md). `add_remove` hides presence too; needs "
        "`capped_ratio` and public `cells`",
        "epsilon": "of one release; [choosing.md](choosing.md) says how to choose it",
        "max_hats_per_day": "K: further HATs of that vehicle and day are not counted",
        "daily_limit": "of one vehicle's day, all releases and queries of all policies of the telemetry topic "
        "together; of several policies that charge a day, the least limit binds. Under `add_remove` at least min(K, "
        "cells x slots) x epsilon",
        "total_limit": "of all days of one vehicle together; when it is spent, nothing more is released",
        "delta": "of the reported (epsilon, delta); with Gaussian noise of the promise itself",
        "min_users": "fewer: `suppressed`. Refused under `add_remove`, where `weight_threshold` suppresses",
        "acknowledge_weak_privacy": "needed above epsilon 10",
        "local_epsilon": "of each report of a device: [hybrid.md](hybrid.md)",
        "max_coalition": "devices that may tell each other their noise, with Gaussian noise; without it "
        "[no amplification](hybrid.md#amplification) is told",
    },
    "policy.estimator": {
        "name": "[estimators.md](estimators.md); those that take devices' reports too: [hybrid.md](hybrid.md)",
        "grouping": "or `wraparound`, where the estimator has arrays",
        "array_length": "`median`, `sensitivity`, `minimax`, `minimax_sqrt2`, `minimax_convex` or a number of "
        "places. `capped_ratio`: a number, required",
        "quantiles": "of `quantile`: the 1/10 and 9/10 quantiles, or `epsilon_dependent`",
        "weight_threshold": "of `capped_ratio`: with less noisy weight, in readings, a HAT is `suppressed` "
        "([estimators.md](estimators.md#when-presence-is-private))",
        "noise": "of hybrid estimators: or `gaussian`, whose promise is [(epsilon, delta)](privacy.md#gaussian-noise)",
        "sigma": "of `kvh` and `kvh_heterogeneous`, km/h: the standard deviation of users' means, known from "
        "elsewhere ([hybrid.md](hybrid.md#estimators))",
        "sigma_local": "of `kvh_heterogeneous`, km/h: that of buses with devices, where theirs is another",
        "mean_gap": "of `kvh_heterogeneous`, km/h: how much faster buses with devices go",
    },
    "policy.query": {
        "name": "as `policy.name`; each query its own",
        "kind": "`mean_speed` (only under `replace`) or `over_speed_limit`",
        "days": "in each period, 1 to 366",
        "from": "the first local date of the first period, not before `policy.from`; required if there is none and "
        "`days` is above 1",
        "epsilon": "what one answer costs in its cell and slot, on each of its days: 0.001 or more",
        "scale": "B of the Laplace noise, in km/h up to `upper_bound`, or in vehicles a day: then an answer costs U / "
        "(`min_n` B), or 1 / (`days` B)",
        "min_n": "user-days below which it is `suppressed`; 1 or more. The other kind has none",
        "speed_limit": "km/h in [0, `upper_bound`): strictly faster counts. The other kind has none",
        "missing_days": "a period with missing days has no answers; `leave_out`: it is answered over the others",
    },
}


def keys_of(table: str) -> dict[str, msgspec.structs.FieldInfo]:
    """The keys of a table as they are written; keys that are tables with a heading of their own are left out."""
    return {
        field.encode_name: field
        for field in msgspec.structs.fields(TABLES[table])
        if f"{table}.{field.encode_name}" not in _MORE_THAN_KEYS
    }
