"""Meaning of each key of hatcast.toml, by table, in the order of docs/configuration.md.

Names, types and defaults come from the structs. `python -m tools.configuration_reference --check` fails if a key has no
meaning here, or a meaning has no key.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from hatcast.agents.config.display_table import DisplayTable
from hatcast.agents.config.settings import KafkaTable, RedisTable, WorkerTable
from hatcast.agents.config.topics_table import TopicsTable
from hatcast.stream.policy.table import (
    ContinualTable,
    EstimatorTable,
    PolicyTable,
    PrivacyTable,
    QueryTable,
    RunningTable,
    TrackerTable,
    ValueTable,
)

TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "kafka": KafkaTable,
    "redis": RedisTable,
    "topics": TopicsTable,
    "worker": WorkerTable,
    "display": DisplayTable,
    "policy": PolicyTable,
    "policy.privacy": PrivacyTable,
    "policy.estimator": EstimatorTable,
    "policy.tracker": TrackerTable,
    "policy.continual": ContinualTable,
    "policy.query": QueryTable,
    "policy.value": ValueTable,
    "policy.running": RunningTable,
}
# Text keys that are durations.
DURATIONS: Final = frozenset(
    {
        *("topics.telemetry_retention", "worker.checkpoint_interval", "worker.session_timeout", "worker.idle_after"),
        *("display.keep", "policy.slot_length", "policy.lateness", "policy.max_ahead", "policy.min_interval"),
    }
)
# Defaults that the struct does not have: set by the code that reads the key, or required in some cases only.
DEFAULTS: Final[Mapping[str, str]] = {
    "policy.privacy.unit": '`"user_day"`; with `[policy.continual]` `"user_horizon"`',
    "policy.privacy.daily_limit": "required; `[policy.continual]`: `max_cells` x `epsilon`",
    "policy.privacy.total_limit": "required for unit `user`",
    "policy.privacy.epsilon": "required; not for `tracker`",
    "policy.privacy.max_hats_per_day": "required; `tracker`: 500; not with `[policy.continual]`",
    "policy.privacy.min_users": "10; `tracker`: 3",
    "policy.privacy.local_epsilon": "`epsilon`",
    "policy.estimator.grouping": '`"bestfit"`',
    "policy.estimator.array_length": "by estimator",
    "policy.estimator.quantiles": '`"fixed"`',
    "policy.estimator.weight_threshold": "20 x `array_length` / `epsilon`",
    "policy.estimator.gamma": "0.2",
    "policy.estimator.noise": '`"laplace"`',
    "policy.estimator.sigma": "required where used",
    "policy.estimator.sigma_local": "`sigma`",
    "policy.estimator.mean_gap": "0",
    "policy.tracker.price": "by `daily_limit`",
    "policy.tracker.watch_share": "0.5",
    "policy.continual.noise": "`laplace`; `gaussian` for `gaussian`, `toeplitz` and `blt`",
    "policy.continual.branching": "least maximum error",
    "policy.continual.buffers": "3",
    "policy.continual.from": "`policy.from`",
    "policy.query.from": "`policy.from`",
    "policy.query.epsilon": "this or `scale`",
    "policy.query.scale": "this or `epsilon`",
    "policy.query.min_n": "required for `mean_speed`",
    "policy.query.speed_limit": "required for `over_speed_limit` without `on_request`",
    "policy.query.threshold": "required for `over_threshold` without `on_request`",
    "policy.running.days": "28",
    "policy.running.of": "`releases`; `tracker`: `estimates`",
    "policy.values": "",
}
_SUBTABLES: Final = frozenset(
    {
        *("policy.privacy", "policy.estimator", "policy.tracker", "policy.continual", "policy.query"),
        *("policy.value", "policy.running"),
    }
)  # each has its own heading

MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "kafka": {
        "bootstrap_servers": "comma-separated; `HATCAST_KAFKA_BOOTSTRAP_SERVERS` overrides it",
        "partitions": "partitions of the telemetry topic, if hatcast creates it",
        "security_protocol": "or `SSL`, `SASL_PLAINTEXT`, `SASL_SSL`",
        "sasl_mechanism": "`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`, with `SASL_*`",
        "sasl_plain_username": "hatcast's user name",
        "sasl_plain_password_file": "a file with its password; or `HATCAST_KAFKA_PASSWORD`",
        "ssl_cafile": "PEM: certificate authorities of the brokers",
        "ssl_certfile": "PEM: hatcast's client certificate, if brokers require one",
        "ssl_keyfile": "PEM: its private key",
        "ssl_check_hostname": "whether a broker's certificate must have the broker's name",
    },
    "redis": {
        "url": "`rediss://` for TLS; `HATCAST_REDIS_URL` overrides it",
        "username": "hatcast's ACL user",
        "password_file": "a file with its password; or `HATCAST_REDIS_PASSWORD`",
        "ssl_ca_certs": "PEM, with `rediss://`: certificate authorities of the server",
        "ssl_certfile": "PEM: hatcast's client certificate, if the server requires one",
        "ssl_keyfile": "PEM: its private key",
    },
    "topics": {
        "prefix": 'prefix of every topic name that is not written in this table, such as `"surat."`',
        "telemetry": "input: key = vehicle id in UTF-8; also the name of the budget's domain. Under `add_remove` it "
        "has `message.timestamp.type = LogAppendTime`, so recordings cannot be replayed into it: use `batch --ledger`",
        "telemetry_format": "or another of [feeds.md](feeds.md): one reading per record",
        "telemetry_partitioner": "partitioner of its producers: `murmur2` (Java, aiokafka, kafka-python) or `crc32` "
        "(librdkafka)",
        "telemetry_retention": 'its retention, if hatcast creates it: 72h or more; `"none"` for recordings',
        "means": "output: the means of HATs",
        "queries": "output: answers to queries over days",
        "budget": "output: the charges of each day",
        "estimates": "output: estimates of every cell, which are made from the means and cost nothing",
        "running": "output: running means of `[[policy.running]]`, which are made from the means and cost nothing",
        "dead_letters": "output, for operators: place and reason of each record that could not be decoded",
        "reports": "input: devices' reports ([device.md](device.md)), if the estimator is [hybrid](hybrid.md); key = "
        "the device's id of the day. Created with the settings of telemetry",
        "clusters": "output: rounds and results of `hatcast cluster live` ([cluster.md](cluster.md#live))",
        "cluster_answers": "input: devices' answers to these rounds",
    },
    "worker": {
        "checkpoint_interval": "time between checkpoints to Redis; 50ms to 60s",
        "session_timeout": "the partitions of a worker that does not answer are reassigned after this time; those of a "
        "killed one within seconds, if another runs or starts on its machine; 1s to 1800s",
        "idle_after": "a live partition gets a heartbeat record after this time without records",
        "user_key_file": "32 bytes in hexadecimal, also from `HATCAST_USER_KEY`; without it a key is created once and "
        "stored in Redis, or in the ledger file of `batch`",
        "report_keys_file": "public keys of the authorities that certify devices: only reports that a device with a "
        "certificate has signed are counted ([device.md](device.md#signed-reports)). Without it signatures are not "
        "checked",
        "listen": '`"127.0.0.1:9464"` serves `/livez`, `/readyz` and `/metrics` ([metrics.md](metrics.md)) there; '
        "without it nothing is served, so that several workers can share one file on one machine. Port 0 takes any "
        "free port and logs it",
    },
    "display": {
        "listen": "address of the page; `--host` and `--port` override its parts",
        "keep": 'slots that ended longer before the newest one are dropped; `"1h"` to `"32d"`. Memory grows with '
        "it: about 2 kB for each hexagon and slot, a release and an estimate",
        "title": "title of the page; with `[policy.value]` by default `Mean` and its name",
        "gtfs": "a GTFS timetable (zip): the map draws its routes and stops, and says which are in a hexagon "
        "([map.md](map.md#where-a-hexagon-is))",
        "basemap": "a PMTiles archive of vector tiles: the map draws it under the hexagons",
        "allow_origins": 'origins whose pages may read the API (CORS), such as `["https://city.example"]`; `["*"]`: '
        "all. None by default ([API](consume.md#from-other-pages))",
        "allow_framing": 'origins whose pages may show the map in a frame, such as `["https://city.example"]`; '
        '`["*"]`: all. None by default',
    },
    "policy": {
        "name": "ASCII letters, digits, `-`, `_`, `.`",
        "replaces": "the previous policy: [below](#a-new-policy)",
        "from": 'the local date (`"2022-02-01"`) from which it counts and releases; required with `replaces` and not '
        "allowed without it",
        "upper_bound": "U, km/h; larger values count as U. Not with `[policy.value]`",
        "reject_above": 'km/h; larger values are rejected as a broken sensor\'s. `"none"`: never, the default with '
        "`[policy.value]`, whose unit it then has",
        "drop_zero": "drop readings of exactly 0; `false` by default with `[policy.value]`",
        "timezone": "such as `Asia/Kolkata`; days and slots are local there",
        "h3_resolution": "resolution of the hexagons, 0 to 15",
        "resolutions": "instead of `h3_resolution`, coarse to fine, such as `[7, 8]`: "
        "[fine hexagons where they are listed](#hexagons-of-several-sizes)",
        "fine_cells": "a file as for `cells`, of cells of the finer resolutions; required with `resolutions`",
        "slot_length": "a number of whole minutes that divides a day",
        "hours": "local slots that start in [9, 21) are released",
        "lateness": "how long after its end a slot accepts readings",
        "max_ahead": "a record dated further ahead of a worker's clock waits; feeds do not send it",
        "min_interval": "one reading per user, HAT and interval counts; at most 86,400 intervals per slot",
        "cells": 'or a file: first line `source = "public"`, `"survey"` or `"private"`, then one H3 index per line; '
        "comment lines start with `#` ([`hatcast survey`](choosing.md#a-list-of-cells) writes such files; a private "
        "one also has its charge, "
        '`epsilon = 1.0`, `days = "FIRST,LAST"` and their `timezone`). Under `add_remove` a file with '
        '`source = "public"` is required',
        "grid": "km/h; releases are multiples of it. Not with `[policy.value]`, which has its own",
        "values": '`["speed", "delay"]`: values of each reading that are released together, for one `epsilon` '
        "([estimators.md](estimators.md#several-values)). Without it the speed alone. Each but `speed` has a table "
        "`[[policy.value]]`",
    },
    "policy.privacy": {
        "unit": "one vehicle's readings of one local day; `user`: of all time; `user_horizon`: of one horizon "
        "([privacy.md](privacy.md))",
        "relation": "neighbouring relation: [privacy.md](privacy.md). `add_remove` hides presence too; needs "
        "`capped_ratio` and public `cells`",
        "epsilon": "of one release: [choosing.md](choosing.md)",
        "max_hats_per_day": "K: further HATs of that vehicle and day are not counted",
        "daily_limit": "limit of one vehicle's day, over all releases and queries of all policies of the telemetry "
        "topic; if several policies charge a day, the smallest limit applies. Under `add_remove` at least min(K, "
        "cells x slots) x epsilon. Or `[epsilon, delta]`, for a policy alone on its telemetry: "
        "[choosing.md](choosing.md#a-limit-as-epsilon-delta)",
        "total_limit": "limit of one vehicle over all days; when it is spent, nothing more is released",
        "delta": "of the reported (epsilon, delta); with Gaussian noise it is part of the guarantee",
        "min_users": "a HAT with fewer users is `suppressed`; `clipped_sum` needs 2 / epsilon of them. Not allowed "
        "under `add_remove`, where `weight_threshold` suppresses",
        "acknowledge_weak_privacy": "required above epsilon 10, and for a `daily_limit` above 10 of `tracker`",
        "local_epsilon": "epsilon of each report of a device: [hybrid.md](hybrid.md)",
        "max_coalition": "number of devices that may share their noise with each other, with Gaussian noise; without "
        "it [no amplification](hybrid.md#amplification) is published",
    },
    "policy.estimator": {
        "name": "[estimators.md](estimators.md); those that take devices' reports too: [hybrid.md](hybrid.md)",
        "grouping": "or `wraparound`, if the estimator has arrays",
        "array_length": "`median`, `sensitivity`, `minimax`, `minimax_sqrt2`, `minimax_convex`, `worst_case` or a "
        "number of places. `capped_ratio`: a number, required",
        "quantiles": "only `quantile`: the 1/10 and 9/10 quantiles, `epsilon_dependent`, or `smoothed` for means "
        "that are often equal ([estimators.md](estimators.md#quantiles))",
        "weight_threshold": "only `capped_ratio`: with less noisy weight, in readings, a HAT is `suppressed` "
        "([estimators.md](estimators.md#when-presence-is-private))",
        "gamma": "only `levy`: how likely a mean of independent readings may be outside of what is kept, 1e-9 to 1; a "
        "smaller one keeps a wider interval, with more noise",
        "noise": "only hybrid estimators: or `gaussian`, whose guarantee is "
        "[(epsilon, delta)](proofs.md#gaussian-noise)",
        "sigma": "only `kvh` and `kvh_heterogeneous`, in the unit of readings: standard deviation of users' "
        "means, from public knowledge "
        "([hybrid.md](hybrid.md#estimators))",
        "sigma_local": "only `kvh_heterogeneous`: the same for buses with devices, if it differs",
        "mean_gap": "only `kvh_heterogeneous`: how much larger the values of buses with devices are",
        "groups": "only hybrid estimators that read both groups: or `separate`, which also publishes "
        "[each group's own mean](hybrid.md#each-groups-own-mean)",
    },
    "policy.tracker": {
        "share": "of `daily_limit`, for queries at the close of a slot; the rest is for the settlement of the day",
        "objective": "what is made accurate: `cells` (HATs nearly alike), `buses` (by number of vehicles) or `mix`",
        "price": "in the value's unit: summed standard deviation that a vehicle's epsilon must save; without it, one "
        "for the daily limit ([specification](specification/tracker.md#3-when-queries-are-made))",
        "watch": 'a file as for `cells`, with `source = "public"`: these cells are queried first, at the close of each '
        "slot",
        "watch_share": "of a vehicle's `daily_limit`, for queries of watched cells: 0.5 if there is a `watch`",
    },
    "policy.continual": {
        "kind": "mechanism of the running sums: `laplace`, `gaussian`, `tree`, `kary`, `toeplitz`, `blt` or "
        "`withhold_release`",
        "horizon_days": "D: local dates of a horizon, 1 to 3660. Its sums begin at its first slot",
        "max_slots": "k: further slots of that vehicle in the same cell and horizon are not counted",
        "min_separation": "b: a slot that is closer to another of that vehicle and cell, in slots, is not counted; 1: "
        "any two slots",
        "max_cells": "further cells of that vehicle and horizon are not counted",
        "noise": "or `gaussian`, whose guarantee is (epsilon, delta), with `delta` / `max_cells` for each cell; "
        "not for `laplace`, `kary` and `withhold_release`",
        "branching": "only `kary`: children of a node, odd",
        "buffers": "only `blt`: numbers that a cell's state holds",
        "at_end": "begin the next horizon with a new charge, or `stop`: nothing more is released",
        "from": 'the local date (`"2022-02-01"`) on which the first horizon begins, not before `policy.from`; without '
        'both, horizons are counted from Monday 1970-01-05. Required with `at_end = "stop"`',
    },
    "policy.query": {
        "name": "as `policy.name`; unique among the queries",
        "kind": "`mean_speed` (only under `replace`) or `over_speed_limit`; with `[policy.value]` `mean_value` or "
        "`over_threshold`",
        "days": "length of each period, 1 to 366",
        "from": "the first local date of the first period, not before `policy.from`; required if there is none and "
        "`days` is above 1",
        "epsilon": "charge of one answer for its cell and slot, on each of its days: 0.001 or more",
        "scale": "B of the Laplace noise, in the unit of readings up to U, or in vehicles per day: an answer's charge "
        "is then U / (`min_n` B), or 1 / (`days` B)",
        "min_n": "only `mean_speed` and `mean_value`: an answer with fewer user-days is `suppressed`; 1 or more",
        "speed_limit": "only `over_speed_limit`: km/h in [0, `upper_bound`); strictly faster vehicles count",
        "threshold": "only `over_threshold`: in the unit of `[policy.value]`, from `lower` to below `upper`; vehicles "
        "with a greater value count",
        "on_request": "only `over_speed_limit` and `over_threshold`, under `replace`: `hatcast query` may request a "
        "limit for each period ([queries](queries.md#a-limit-of-your-choice)); without a request the policy's is used",
        "missing_days": "a period with missing days has no answers; `leave_out`: it is answered over the other days",
    },
    "policy.value": {
        "name": "lower-case letters, digits, `_`: the field of a `jsonl` record, or `delay` of `hfp` ([feeds.md]"
        "(feeds.md#a-value-other-than-the-speed)). In `[policy.value]` also `speed`, in km/h",
        "unit": 'such as `"s"`: of the number in the reading, of the keys below and of what is released',
        "lower": "smaller values count as this; may be negative. In `[policy.value]` a multiple of `grid`",
        "upper": "larger values count as this. Noise is in proportion to `upper` - `lower`",
        "grid": "releases are multiples of it",
        "missing": "numbers outside `lower` to `upper` that mean that there is no value, such as `[-999]`: such a "
        "reading does not count. Under `replace` it is public which readings these are",
    },
    "policy.running": {
        "name": "as `policy.name`; unique among the running means. The map shows it",
        "window": "`today`: the local date so far; `24h`, `7d`: slots that ended in the last 24 hours or 7 days; "
        "`same_hour`: this hour of all weekdays, or on a weekend of all its days, of `days` dates",
        "days": "only `same_hour`: number of local dates up to the present one, 1 to 92",
        "of": "inputs: `releases`, or the [estimates](specification/tracker.md#5-estimates), whose intervals are "
        "narrower where the noise is large",
    },
}


def table_keys(table: str) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the keys of a table by name, without those that are tables with their own heading."""
    return {
        field.encode_name: field
        for field in msgspec.structs.fields(TABLES[table])
        if f"{table}.{field.encode_name}" not in _SUBTABLES
    }
