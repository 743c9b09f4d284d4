"""`hatcast device`: run a device of the local model, or a fleet of them."""

import os
import sys
import threading
from pathlib import Path
from typing import Any, Final

import click

from hatcast.agents.cli.options import (
    FILE,
    PATH,
    FiniteRange,
    config_option,
    json_option,
    parsed,
    stop_on_signals,
    vehicles_of,
)
from hatcast.agents.cli.recordings import checked_format, format_options
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.device.closing import ReadingFilter
from hatcast.agents.device.run import DeviceOptions, DeviceSummary, run_city, run_live, run_recording
from hatcast.agents.device.sources import fleet_filter, read_lines, single_vehicle_filter, vehicles_in
from hatcast.agents.monitoring.logs import configure_logs
from hatcast.agents.recordings.files import open_recording
from hatcast.agents.sources.replay import replay_pace
from hatcast.agents.sources.synthetic import CityOptions
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.readings.recording import Recording
from hatcast.stream.readings.vehicles import canonical_vehicle

_INTERRUPTED: Final = 130
_STDIN: Final = "-"
_EPILOG: Final = """\b
Examples:
  A bus:       gps-reader | hatcast device - --vehicle GJ05BX1234 --state /var/lib/hatcast/device.db
  By MQTT:     hatcast device --mqtt mqtts://bus@broker.example/bus/GJ05BX1234 --vehicle GJ05BX1234
  Its past:    hatcast device yesterday.jsonl --speedup 0 --state past.db
  A trial:     hatcast feed replay hour.csv.gz --format capmetro --speedup 60 --except-vehicles local.txt
               hatcast device hour.csv.gz --format capmetro --speedup 60 --vehicles-file local.txt --state fleet.db
  10,000:      hatcast device --synthetic --fleet 10000 --speedup 60 --state fleet.db
"""


def _own_id(text: str) -> str:
    vehicle = canonical_vehicle(text)
    if vehicle is None:
        raise ValueError
    return vehicle


@click.command(epilog=_EPILOG)
@click.argument("files", nargs=-1, metavar="[FILE...]")
@format_options(files="files", default="jsonl", derives=False, of="readings")
@click.option("--mqtt", metavar="URL", help="Live, mqtt://user@host:1883/topic or mqtts://; HATCAST_FEED_PASSWORD.")
@click.option(
    "--vehicle",
    callback=parsed(_own_id, "not a vehicle id: write 1 to 128 bytes"),
    metavar="ID",
    help="Vehicle of this device, if the source has several.",
)
@click.option(
    "--fleet", type=click.IntRange(min=1), metavar="N", help="Trial: a device for each of the first N vehicles."
)
@click.option(
    "--vehicles-file",
    "vehicles",
    type=PATH,
    callback=vehicles_of,
    help="Trial: a device for each vehicle in this file, one id per line.",
)
@click.option("--synthetic", is_flag=True, help="Trial: a fleet in a synthetic city.")
@click.option("--seed", type=int, help="Seed: the same city each time.")
@click.option(
    "--speedup",
    type=click.FloatRange(min=0),
    help="Of recorded time. 60: an hour per minute; 0: as fast as possible.  [default: 1]",
)
@click.option("--for", "seconds", type=click.FloatRange(min=0), help="Stop after this many seconds.")
@click.option("--no-end", is_flag=True, help="Do not report the last slot when the source ends.")
@click.option(
    "--state", type=FILE, help="State file.  [default: hatcast/device.db in $XDG_STATE_HOME or ~/.local/state]"
)
@click.option(
    "--max-hats-per-day", type=click.IntRange(min=1), help="Most reports a day, if fewer than the policy allows."
)
@click.option(
    "--cluster-epsilon",
    type=FiniteRange(0, 1000, min_open=True),
    metavar="E",
    help="Answer `hatcast cluster live`: all clusterings of a day cost at most this.  [default: answer none]",
)
@click.option("--sign", is_flag=True, help="Sign reports with the keys in the state file: `hatcast keys`.")
@config_option
@json_option
def command(*, files: tuple[str, ...], config: Path, as_json: bool, **given: Any) -> None:
    """Run a device that does not trust the operator: it sends one noisy mean per hexagon and hour.

    FILEs are recordings; - is standard input, with one live JSON reading per line. No reading leaves the device. At the
    end of a slot it clips its mean in each hexagon to [0, upper_bound], adds its own noise for local_epsilon, stores
    the report in its state file and sends it, always as the same bytes. The state file prevents a second draw: do not
    delete it before the day is over, and give each device its own.

    This hides how fast the bus went (relation "replace"): the operator never learns the mean, only the noisy value. It
    does not hide where and when the bus was: a report names its hexagon and slot, and all reports of a day have the
    same random id, so they can be linked to one device. The id changes every day.

    With --cluster-epsilon it answers private K-means of its days too, with noise of its own, and then runs until it is
    stopped; the state file then holds its own sums of the last days.

    The first hexagons of a day are reported, up to max_hats_per_day and up to daily_limit. A live device that is killed
    loses the readings of the open slot; it never reports a slot twice.
    """
    options = _options(files, given)
    settings = load_settings(config)
    with stop_on_signals(given["seconds"]) as stop:
        if files == (_STDIN,) or given["mqtt"] is not None:
            summary = _live(settings, given, options, stop)
        elif given["synthetic"]:
            city = CityOptions(vehicles=given["fleet"], speedup=_speedup(given), seed=given["seed"])
            summary = run_city(settings, city, options, stop)
        else:
            summary = _recorded(settings, files, given, options, stop)
    summary.show(as_json=as_json)
    if not summary.finished:
        sys.exit(_INTERRUPTED)


def _options(files: tuple[str, ...], given: dict[str, Any]) -> DeviceOptions:
    """Return the device options. Raises click.UsageError for options that exclude each other."""
    live, synthetic = _STDIN in files or given["mqtt"] is not None, given["synthetic"]
    fleet = given["fleet"] is not None or given["vehicles"] is not None
    for wrong, message in (
        (_STDIN in files and len(files) > 1, "- is standard input and must be the only source"),
        (
            bool(files) + synthetic + (given["mqtt"] is not None) != 1,
            "name one source: FILEs, - for standard input, --mqtt or --synthetic",
        ),
        (synthetic and given["fleet"] is None, "--synthetic needs --fleet N"),
        (synthetic and given["vehicles"] is not None, "--vehicles-file is for a recording"),
        (given["seed"] is not None and not synthetic, "--seed is for --synthetic"),
        (live and fleet, "a fleet needs a recording or --synthetic"),
        (live and given["speedup"] is not None, "--speedup is for recordings"),
        (fleet and given["vehicle"] is not None, "--vehicle is for one device, not for a fleet"),
        (synthetic and given["cluster_epsilon"] is not None, "--cluster-epsilon is not for --synthetic"),
        (fleet and given["state"] is None, "a fleet needs --state FILE, a new file for each trial"),
    ):
        if wrong:
            raise click.UsageError(message)
    state_home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return DeviceOptions(
        state=given["state"] or Path(state_home).expanduser() / "hatcast" / "device.db",
        choice=None if synthetic else given["feed_format"],
        most_hats=given["max_hats_per_day"],
        with_end=not given["no_end"],
        cluster_epsilon=given["cluster_epsilon"],
        with_signatures=given["sign"],
    )


def _speedup(given: dict[str, Any]) -> float:
    return 1.0 if given["speedup"] is None else float(given["speedup"])


def _live(settings: Settings, given: dict[str, Any], options: DeviceOptions, stop: threading.Event) -> DeviceSummary:
    configure_logs()
    feed = policy_format(given["feed_format"], settings.policy, live=True)
    accepts = _filter(given["vehicle"], "the source")
    if given["mqtt"] is None:
        # Its own file object: Python closes sys.stdin at exit, which fails while a thread reads it.
        lines = open(sys.stdin.fileno(), "rb", closefd=False)  # noqa: SIM115 - read until the process ends
        return run_live(settings, read_lines(lines, feed.decode), accepts, options, stop)
    # Imported here: only this source needs MQTT.
    from hatcast.agents.device.sources import MqttTopic, mqtt_readings

    with mqtt_readings(MqttTopic.parse(given["mqtt"], os.environ), feed) as arrived:
        return run_live(settings, arrived, accepts, options, stop)


def _filter(vehicle: str | None, source: str) -> ReadingFilter:
    return single_vehicle_filter(source) if vehicle is None else fleet_filter(frozenset((vehicle,)))


def _recorded(
    settings: Settings, files: tuple[str, ...], given: dict[str, Any], options: DeviceOptions, stop: threading.Event
) -> DeviceSummary:
    pace = replay_pace(settings.policy, _speedup(given), stop)
    with open_recording(files, checked_format(given["feed_format"], settings.policy, files)) as recording:
        if given["fleet"] is None and given["vehicles"] is None:
            accepts = _filter(given["vehicle"], ", ".join(files))
            if given["vehicle"] is None and len(vehicles_in(recording)) > 1:
                raise HatcastError(
                    f"{', '.join(files)} has readings of several vehicles: name this device's with --vehicle, or run"
                    " many devices with --fleet"
                )
            summary = run_recording(settings, recording, accepts, options, pace, heartbeats=False)
            if summary.finished and not summary.readings:
                raise HatcastError(f"{', '.join(files)} has no reading of this vehicle: correct --vehicle")
            return summary
        fleet = _fleet(recording, given["vehicles"], given["fleet"])
        return run_recording(settings, recording, fleet_filter(fleet), options, pace, heartbeats=True)


def _fleet(recording: Recording, listed: frozenset[str] | None, number: int | None) -> frozenset[str]:
    """Return the vehicles of a fleet; warn if there are fewer than requested."""
    recorded = vehicles_in(recording)
    vehicles = sorted(recorded if listed is None else recorded & listed)
    if not vehicles:
        raise HatcastError("the recording has none of the vehicles in --vehicles-file: correct the file")
    missing = 0 if listed is None else len(listed - recorded)
    if missing:
        click.echo(f"{missing} of the vehicles in --vehicles-file are not in the recording", err=True)
    if number is not None and number > len(vehicles):
        click.echo(f"there are only {len(vehicles)} vehicles: each is a device", err=True)
    return frozenset(vehicles[:number])
