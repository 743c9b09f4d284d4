"""Wrong configurations: each ends in one exact line with the key, the problem, and an example of what to write."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hatcast.agents.config.settings import load_settings
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.toml_tables import example, value_type
from tools.configuration_reference import TABLES

CORRECT = """\
[kafka]
partitions = 8

[redis]

[topics]
telemetry_retention = "72h"

[policy]
name = "bus-speeds"
upper_bound = 65.0
timezone = "Asia/Kolkata"
hours = [9, 21]

[policy.privacy]
epsilon = 1.0
max_hats_per_day = 89
daily_limit = 89.0

[policy.estimator]
name = "levy"
"""
ESTIMATORS = (
    "baseline, array_averaging, opt_array_averaging, levy, quantile, clipped_sum, weighted_mean, capped_ratio, "
    "tcm_only, lm_only, full_lm, kvh, kvh_heterogeneous, pwh, tracker"
)
FORMATS = (
    "jsonl, itms, gtfs-rt, gtfs-rt-plate, gtfs-rt-label, hfp, siri, capmetro, gtfs-rt-in-service,"
    " gtfs-rt-plate-in-service, gtfs-rt-label-in-service, siri-in-service"
)
WRONG = [
    (
        "max_hats_per_day = 89",
        'max_hats_per_day = "89"',
        "policy.privacy.max_hats_per_day: '89' is text, not an integer; write it without quotes: max_hats_per_day = 89",
    ),
    (
        "max_hats_per_day = 89",
        'max_hats_per_day = "many"',
        "policy.privacy.max_hats_per_day: 'many' is text, not an integer; write max_hats_per_day = 89",
    ),
    (
        "max_hats_per_day = 89",
        "max_hats_per_day = 89.5",
        "policy.privacy.max_hats_per_day: 89.5 is a number, not an integer; write max_hats_per_day = 89",
    ),
    ("max_hats_per_day = 89", 'K = "89"', "policy.privacy.K: is not a known key; did you mean max_hats_per_day?"),
    (
        'retention = "72h"',
        "retention = 72",
        'topics.telemetry_retention: 72 is an integer, not text; write telemetry_retention = "72h"',
    ),
    (
        'retention = "72h"',
        'retention = "forever"',
        (
            "topics.telemetry_retention: 'forever' is not a duration; write an integer with ms, s, m, h or d, such as"
            ' "72h"'
        ),
    ),
    (
        'name = "bus-speeds"',
        'name = "b"\nreplaces = "a"\nfrom = 2022-02-01',
        'policy.from: 2022-02-01 is a date, not text; write it in quotes: from = "2022-02-01"',
    ),
    (
        'name = "bus-speeds"',
        "name = 7",
        'policy.name: 7 is an integer, not text; write name = "bus-speeds"',
    ),
    (
        'name = "bus-speeds"',
        'name = "b"\ndrop_zero = "true"',
        "policy.drop_zero: 'true' is text, not true or false; write it without quotes: drop_zero = true",
    ),
    (
        'name = "bus-speeds"',
        'name = "b"\nreject_above = true',
        "policy.reject_above: true is a boolean, not a number or text; write reject_above = 150.0",
    ),
    (
        "upper_bound = 65.0",
        'upper_bound = "65"',
        "policy.upper_bound: '65' is text, not a number; write it without quotes: upper_bound = 65",
    ),
    (
        "hours = [9, 21]",
        'hours = "9-21"',
        "policy.hours: '9-21' is text, not a list of 2 integers; write hours = [9, 21]",
    ),
    (
        "hours = [9, 21]",
        'hours = [9, "21"]',
        "policy.hours: '21' is text, not a list of 2 integers; write hours = [9, 21]",
    ),
    ("hours = [9, 21]", "hours = [9]", "policy.hours: is a list of 1, not a list of 2 integers; write hours = [9, 21]"),
    (
        "[redis]",
        "[display]\ntitle = 5\n[redis]",
        'display.title: 5 is an integer, not text; write title = "Bus speeds, hour by hour"',
    ),
    (
        "daily_limit = 89.0",
        "daily_limit = [89.0]",
        "policy.privacy.daily_limit: is neither a number nor [epsilon, delta]; write 20.0, or [16.1, 1e-6]",
    ),
    (
        "[redis]",
        "redis = 6379",
        (
            "kafka.redis: is not a known key; known keys are bootstrap_servers, partitions, sasl_mechanism,"
            " sasl_plain_password_file, sasl_plain_username, security_protocol, ssl_cafile, ssl_certfile,"
            " ssl_check_hostname, ssl_keyfile"
        ),
    ),
    (
        "[kafka]\npartitions = 8",
        "kafka = 9092",
        "kafka: 9092 is an integer, not a table; write [kafka] on a line of its own, and its keys below",
    ),
    (
        "[policy.privacy]",
        'resolutions = [7, "8"]\n[policy.privacy]',
        "policy.resolutions: '8' is text, not a list of integers; write resolutions = [7, 8]",
    ),
    (
        "[policy.privacy]",
        "resolutions = 8\n[policy.privacy]",
        "policy.resolutions: 8 is an integer, not a list of integers; write resolutions = [7, 8]",
    ),
    (
        "[policy.privacy]",
        "fine_cells = true\n[policy.privacy]",
        'policy.fine_cells: true is a boolean, not text; write fine_cells = "fine.txt"',
    ),
    (
        "[policy.estimator]",
        "[policy.query]\ndays = 7\n[policy.estimator]",
        (
            "policy.query: is a table, not a list of tables; write [[policy.query]] on a line of its own, and its keys"
            " below"
        ),
    ),
    (
        "[policy.estimator]",
        '[[policy.query]]\nname = "q"\nkind = "over_speed_limit"\ndays = "7"\n[policy.estimator]',
        "policy.query[0].days: '7' is text, not an integer; write it without quotes: days = 7",
    ),
    (
        "[policy.estimator]",
        '[[policy.query]]\nname = "q"\ndays = 7\n[policy.estimator]',
        'policy.query[0].kind: is missing; add it to [[policy.query]], such as kind = "over_speed_limit"',
    ),
    (
        "[policy.estimator]",
        '[[policy.query]]\nname = "q"\nkind = "overspeed_limit"\ndays = 7\n[policy.estimator]',
        (
            "policy.query[0].kind: 'overspeed_limit' is not a kind of query; did you mean over_speed_limit? use one of"
            " mean_speed, over_speed_limit"
        ),
    ),
    (
        '[policy.estimator]\nname = "levy"',
        '[policy.estimator]\nname = "tracker"',
        (
            "policy.privacy.epsilon: is not used by tracker, which has no epsilon of a HAT; remove it: daily_limit is"
            " what a vehicle can lose on a day"
        ),
    ),
    (
        "[policy.privacy]",
        "continual = 7\n[policy.privacy]",
        (
            "policy.continual: 7 is an integer, not a table; write [policy.continual] on a line of its own, and its"
            " keys below"
        ),
    ),
    (
        "[policy.privacy]",
        '[policy.continual]\nkind = "tree"\n[policy.privacy]',
        ("policy.estimator: is not used with [policy.continual]; remove it: policy.continual.kind is the mechanism"),
    ),
    ("upper_bound = 65.0", "", "policy.upper_bound: is missing; add it to [policy], such as upper_bound = 65.0"),
    (
        '[policy.estimator]\nname = "levy"',
        "",
        "policy.estimator: is missing; add the table [policy.estimator], or let `hatcast init` write a first file",
    ),
    (
        CORRECT[CORRECT.index("[policy]") :],
        "",
        "policy: is missing; add the table [policy], or let `hatcast init` write a first file",
    ),
    ("[topics]", "[topic]", "topic: is not a known key; did you mean topics?"),
    (
        "upper_bound = 65.0",
        "upper_bound = 65.0\nepsilon = 1.0",
        "policy.epsilon: is not a known key; write it in [policy.privacy]",
    ),
    (
        'name = "levy"',
        'name = "levy"\nmin_users = 3',
        "policy.estimator.min_users: is not a known key; write it in [policy.privacy]",
    ),
    ("partitions = 8", "partition = 8", "kafka.partition: is not a known key; did you mean partitions?"),
    (
        'name = "levy"',
        'name = "Levi"',
        f"policy.estimator.name: 'Levi' is not an estimator; did you mean levy? use one of {ESTIMATORS}",
    ),
    (
        'name = "levy"',
        'name = "laplace"',
        f"policy.estimator.name: 'laplace' is not an estimator; use one of {ESTIMATORS}",
    ),
    (
        'name = "levy"',
        'name = "levy"\ngrouping = "best_fit"',
        "policy.estimator.grouping: 'best_fit' is unknown; did you mean bestfit? use one of bestfit, wraparound",
    ),
    (
        "epsilon = 1.0",
        'epsilon = 1.0\nrelation = "add-remove"',
        (
            "policy.privacy.relation: 'add-remove' is not a relation; did you mean add_remove? use one of replace,"
            " add_remove"
        ),
    ),
    (
        "epsilon = 1.0",
        'epsilon = 1.0\nunit = "user-day"',
        (
            "policy.privacy.unit: 'user-day' is not a privacy unit; did you mean user_day? use one of user_day, user:"
            " one vehicle on one day, or on all days"
        ),
    ),
    (
        'retention = "72h"',
        'format = "gtfs_rt"',
        f"topics.telemetry_format: 'gtfs_rt' is not a format; did you mean gtfs-rt? use one of {FORMATS}",
    ),
    (
        "Asia/Kolkata",
        "Asia/Kolkatta",
        (
            "policy.timezone: 'Asia/Kolkatta' is not a known time zone; did you mean Asia/Kolkata? use a name such as"
            ' "Asia/Kolkata"'
        ),
    ),
    (
        "epsilon = 1.0",
        "epsilon = 1e6",
        (
            "policy.privacy.epsilon: 1e+06 gives hardly any privacy; use at most 10, or set acknowledge_weak_privacy ="
            " true"
        ),
    ),
    (
        "epsilon = 1.0",
        "epsilon = 1e9",
        (
            "policy.privacy.epsilon: 1e+09 is more than the ledger can count; use a number above 0 and at most 10,"
            " such as 1.0"
        ),
    ),
    (
        "epsilon = 1.0",
        "epsilon = 0",
        "policy.privacy.epsilon: 0 is not above 0; use a number above 0 and at most 10, such as 1.0",
    ),
]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("[" * 500, "is not TOML: brackets are nested too deeply; correct it there"),
        ("{a=" * 500, "is not TOML: brackets are nested too deeply; correct it there"),
        ("9" * 5_000, "is not TOML: a number has thousands of digits; correct it there"),
        ("9" * 4_000, "policy.upper_bound: has an integer of more than 64 bits; write a smaller one"),
        ("0x" + "f" * 5_000, "policy.upper_bound: has an integer of more than 64 bits; write a smaller one"),
    ],
    ids=["arrays", "tables", "digits", "integer", "hexadecimal"],
)
def test_a_value_that_python_cannot_read_or_print_is_one_line(tmp_path: Path, value: str, problem: str) -> None:
    path = tmp_path / "hatcast.toml"
    path.write_text(CORRECT.replace("upper_bound = 65.0", f"upper_bound = {value}"))
    with pytest.raises(HatcastError) as refused:
        load_settings(path, {})
    assert str(refused.value) == f"{path}: {problem}"


@pytest.mark.parametrize(("written", "instead", "line"), WRONG, ids=[instead or "none" for _, instead, _ in WRONG])
def test_a_wrong_configuration_is_one_line_with_the_key_and_an_example(
    written: str, instead: str, line: str, tmp_path: Path
) -> None:
    path = tmp_path / "hatcast.toml"
    assert CORRECT.count(written) == 1
    path.write_text(CORRECT.replace(written, instead))
    with pytest.raises(HatcastError) as refused:
        load_settings(path, {})
    assert str(refused.value) == f"{path}: {line}"


def test_the_configuration_that_the_others_change_is_correct(tmp_path: Path) -> None:
    path = tmp_path / "hatcast.toml"
    path.write_text(CORRECT)
    assert load_settings(path, {}).policy.estimator == "levy"


@pytest.mark.parametrize("missing", ["epsilon = 1.0\n", "max_hats_per_day = 89\n", "daily_limit = 89.0\n"])
def test_a_misspelt_estimator_is_named_before_the_keys_that_only_other_estimators_need(
    tmp_path: Path, missing: str
) -> None:
    file = tmp_path / "hatcast.toml"
    file.write_text(CORRECT.replace('"levy"', '"trackr"').replace(missing, ""))
    with pytest.raises(HatcastError, match=r"policy\.estimator\.name: 'trackr' is not .*; did you mean tracker\?"):
        load_settings(file)


def test_a_tracker_names_the_daily_limit_if_that_is_text(tmp_path: Path) -> None:
    path = tmp_path / "hatcast.toml"
    head = CORRECT[: CORRECT.index("[policy.privacy]")]
    path.write_text(f'{head}[policy.privacy]\ndaily_limit = "5"\n[policy.estimator]\nname = "tracker"\n')
    with pytest.raises(
        HatcastError, match=r"policy\.privacy\.daily_limit: '5' is text, not a number; write it without"
    ):
        load_settings(path, {})


def keys() -> list[Any]:
    return [
        pytest.param(field, id=f"{table}.{field.encode_name}")
        for table, struct in TABLES.items()
        for field in msgspec.structs.fields(struct)
        if f"{table}.{field.encode_name}" not in TABLES
    ]


@pytest.mark.parametrize("field", keys())
def test_every_key_has_an_example_of_its_type_for_error_messages(field: msgspec.structs.FieldInfo) -> None:
    shown = example(field)
    assert shown not in (None, "")
    msgspec.convert(shown, value_type(field))
