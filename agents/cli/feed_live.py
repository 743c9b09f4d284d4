"""`hatcast feed mqtt`, `gtfs-rt`, `siri` and `amqp`: the live feeds."""

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from hatcast.agents.cli.options import (
    FILE,
    Function,
    combined,
    config_option,
    json_option,
    log_level_option,
    metrics_listen_option,
)
from hatcast.agents.cli.recordings import (
    DERIVE,
    HEADER_TIME,
    derive_options,
    format_options,
    header_time_option,
    times_in_option,
)
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.config.tables import Address
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.policy.toml_tables import duration_ms
from hatcast.stream.readings.formats import IN_SERVICE, Columns, FormatChoice

if TYPE_CHECKING:
    from hatcast.agents.sources.connection import LiveSource
    from hatcast.agents.sources.endpoint import Endpoint

_MQTT_PORTS: Final = (1883, 8883)
_AMQP_PORTS: Final = (5672, 5671)


def _duration(_: click.Context, parameter: click.Parameter, text: str) -> float:
    try:
        seconds = duration_ms(text, parameter.opts[0]) / 1000
    except SettingError:
        seconds = 0.0
    if not 1 <= seconds <= 366 * 86_400:
        raise click.BadParameter('write "15s", "5m" or "1d": 1 s or more')
    return seconds


def _filters(_: click.Context, __: click.Parameter, topics: tuple[str, ...]) -> tuple[str, ...]:
    from aiomqtt import Wildcard

    for topic in topics:
        try:
            Wildcard(topic)
        except ValueError:
            raise click.BadParameter(
                f"{topic!r} is not a topic filter: + and # stand alone between slashes, and # comes last"
            ) from None
    return topics


_common = combined(
    config_option,
    click.option("--for", "seconds", type=click.FloatRange(min=0), help="Stop after this many seconds."),
    click.option(
        "--buffer",
        type=click.IntRange(1, 1_000_000),
        default=10_000,
        help="Most readings on the way to Kafka; then the source waits.",
    ),
    metrics_listen_option,
    log_level_option,
    json_option,
)
_ca_file = click.option("--ca-file", type=FILE, help="CA file for the source's certificate.  [default: the system's]")
_broker = combined(
    click.option("--host", required=True, help="Host of the broker."),
    click.option("--port", type=click.IntRange(1, 65_535), help="Port of the broker.  [default: the standard port]"),
    click.option("--user", help="User name."),
    click.option("--password-file", type=FILE, help="File with the password; else HATCAST_FEED_PASSWORD."),
    click.option("--tls", is_flag=True, help="Use TLS; the certificate is verified."),
    _ca_file,
    click.option("--cert-file", type=FILE, help="Client certificate, if the broker requires one."),
    click.option("--key-file", type=FILE, help="Private key of the client certificate."),
)


@click.command(
    short_help="An MQTT topic.",
    epilog="Example:  hatcast feed mqtt --host mqtt.hsl.fi --tls --format hfp --topic '/hfp/v2/journey/ongoing/vp/#'",
)
@_broker
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    callback=_filters,
    help="Topic filter, with + and #; may be repeated.",
)
@format_options(required=True, of="payloads")
@click.option("--qos", type=click.IntRange(0, 1), default=1, help="0: lost messages are not sent again.")
@click.option("--client-id", help="Client id of the session.  [default: by topics, target and machine]")
@click.option("--session", callback=_duration, default="1d", help="Expiry of the session (MQTT 5).")
@click.option("--protocol", type=click.Choice(["5", "3.1.1"]), default="5")
@_common
def mqtt(**given: Any) -> None:
    """Send the messages of an MQTT topic, until Ctrl-C, SIGTERM or --for.

    At QoS 1 a message is acknowledged once Kafka has its readings, and the broker queues messages while this bridge is
    disconnected.
    """
    _check_tls(given)
    settings = _settings(given)
    from hatcast.agents.sources.mqtt import MqttSource, Subscription

    endpoint = _endpoint(given, _MQTT_PORTS)
    subscription = Subscription(
        given["topics"], given["qos"], given["client_id"], int(given["session"]), given["protocol"]
    )
    _run(given, settings, given["feed_format"], lambda: MqttSource(endpoint, subscription, settings.topics.telemetry))


def _polled(every: str) -> Callable[[Function], Function]:
    """Return the options of the polled feeds. `every`: the default interval."""
    return combined(
        click.argument("url"),
        click.option("--every", callback=_duration, default=every, help="Polling interval."),
        click.option("--key-header", metavar="NAME", help="Header of the API key, such as X-API-Key."),
        click.option(
            "--key-parameter", metavar="NAME", help="Query parameter of the API key, if it is not sent in a header."
        ),
        click.option("--key-file", type=FILE, help="File with the API key; else HATCAST_FEED_KEY."),
        click.option("--in-service", is_flag=True, help="Leave out vehicles without a trip or journey."),
        derive_options,
        _ca_file,
        _common,
    )


@click.command(
    "gtfs-rt",
    short_help="GTFS-RT vehicle positions over HTTP.",
    epilog="Example:  hatcast feed gtfs-rt https://agency.example/vehiclepositions.pb --every 15s",
)
@_polled("15s")
@header_time_option
@click.option(
    "--vehicle",
    "field",
    type=click.Choice(["id", "plate", "label"]),
    default="id",
    help="Field with the vehicle's id; label: only if each vehicle has one of its own, the same all day.",
)
def gtfs_rt(**given: Any) -> None:
    """Poll a URL for vehicle positions, until Ctrl-C, SIGTERM or --for.

    Unchanged data is not sent twice: neither an unchanged response nor a vehicle with an unchanged timestamp.
    """
    field = given.pop("field")
    form = "gtfs-rt" if field == "id" else f"gtfs-rt-{field}"
    _run_polls(given, "gtfs-rt", form, accept="application/x-protobuf, application/octet-stream;q=0.9, */*;q=0.1")


@click.command(
    short_help="SIRI-VM in XML or JSON over HTTP.",
    epilog="Example:  hatcast feed siri https://agency.example/vehicle-monitoring.xml --key-parameter key",
)
@_polled("30s")
@times_in_option
def siri(**given: Any) -> None:
    """Poll a URL for SIRI vehicle monitoring, until Ctrl-C, SIGTERM or --for.

    Unchanged data is not sent twice: neither an unchanged response nor a vehicle with an unchanged time.
    """
    _run_polls(given, "siri", "siri", accept="application/xml, application/json;q=0.9, */*;q=0.1")


def _run_polls(given: dict[str, Any], name: str, form: str, accept: str) -> None:
    """Run a polled feed.

    name   of the command
    form   name of its format
    """
    if not given["url"]:
        raise click.UsageError("the address is empty: if a variable has it (HATCAST_GTFS_RT_URL in compose), set that")
    if not _is_address(given["url"]):
        raise click.UsageError("write the address as http://host/... or https://host/...")
    form += IN_SERVICE if given["in_service"] else ""
    settings = _settings(given)
    from hatcast.agents.sources.endpoint import KEY_VARIABLE, read_secret, tls_context
    from hatcast.agents.sources.polling import Poll, PollSource

    key_name = given["key_header"] or given["key_parameter"]
    key = read_secret(KEY_VARIABLE, given["key_file"])
    if (key_name is None) != (key is None) or (given["key_header"] and given["key_parameter"]):
        raise click.UsageError(
            "an API key needs --key-header or --key-parameter, and its value in HATCAST_FEED_KEY or --key-file"
        )
    poll = Poll(
        name,
        given["url"],
        given["every"],
        None if key_name is None or key is None else (key_name, key),
        given["key_header"] is None,
        None if given["ca_file"] is None else tls_context(given["ca_file"]),
        accept,
    )
    times_in = given.get("times_in")
    columns = None if times_in is None else Columns(times_in=times_in)
    choice = FormatChoice(form, columns, given[DERIVE], given.get(HEADER_TIME, False))
    _run(given, settings, choice, lambda: PollSource(poll), polled=True)


@click.command(
    short_help="AMQP 0-9-1, such as IUDX's ITMS.",
    epilog="Example:  hatcast feed amqp --host databroker.example --tls --vhost IUDX --user me --queue itms",
)
@_broker
@click.option("--queue", required=True, help="Queue to consume; it must exist unless --exchange is given.")
@click.option("--vhost", default="/")
@click.option("--exchange", help="Create the queue as durable and bind it to this exchange.")
@click.option("--routing-key", default="#", help="Routing key of that binding.")
@format_options(default="itms", of="bodies")
@_common
def amqp(**given: Any) -> None:
    """Send the messages of a queue, until Ctrl-C, SIGTERM or --for.

    A message is acknowledged once Kafka has its readings.
    """
    _check_tls(given)
    settings = _settings(given)
    from hatcast.agents.sources.amqp import AmqpQueue, AmqpSource

    endpoint = _endpoint(given, _AMQP_PORTS)
    queue = AmqpQueue(given["queue"], given["vhost"], given["exchange"], given["routing_key"])
    _run(given, settings, given["feed_format"], lambda: AmqpSource(endpoint, queue))


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port that is not a number
        return False


def _check_tls(given: dict[str, Any]) -> None:
    if not given["tls"] and any(given[name] for name in ("ca_file", "cert_file", "key_file")):
        raise click.UsageError("--ca-file, --cert-file and --key-file need --tls")
    if (given["cert_file"] is None) != (given["key_file"] is None):
        raise click.UsageError("--cert-file and --key-file go together")


def _settings(given: dict[str, Any]) -> Settings:
    from hatcast.agents.monitoring.logs import configure_logs

    settings = load_settings(given["config"])
    configure_logs(given["log_level"])
    return settings


def _endpoint(given: dict[str, Any], ports: tuple[int, int]) -> "Endpoint":
    from hatcast.agents.sources.endpoint import PASSWORD_VARIABLE, Endpoint, read_secret, tls_context

    tls = tls_context(given["ca_file"], given["cert_file"], given["key_file"]) if given["tls"] else None
    password = read_secret(PASSWORD_VARIABLE, given["password_file"]) if given["user"] else None
    port = given["port"] or ports[given["tls"]]
    return Endpoint(given["host"], port, given["user"], password, tls)


def _run(
    given: dict[str, Any],
    settings: Settings,
    feed: FormatChoice,
    connect: Callable[[], "LiveSource"],
    *,
    polled: bool = False,
) -> None:
    from hatcast.agents.sources.live import LiveOptions, run_live

    listen: Address | None = given["metrics_listen"]
    options = LiveOptions(feed, given["buffer"], polled, given["seconds"], listen)
    summary = asyncio.run(run_live(settings, options, connect))
    summary.show(as_json=given["as_json"])
    if summary.never_reached:
        raise HatcastError(f"{summary.never_reached}: check that it runs, and its address, port and TLS options")
    if summary.unconfirmed:
        sys.exit(1)
