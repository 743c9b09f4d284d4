"""`hatcast query`: request the limit of a query over days, for one period."""

import asyncio
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import click
import msgspec

from hatcast.agents.cli.options import FiniteNumber, FiniteRange, config_option, json_option, local_date, parsed
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.aio import KafkaError, UnknownTopicOrPartitionError
from hatcast.agents.kafka.client import broker_name, wait_for_broker
from hatcast.agents.kafka.registry import Facts, LimitRequest, Registry, read_request, request_key
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import Period, Query
from hatcast.stream.readings.reading import in_milli
from hatcast.stream.release.placed import utc_text


@click.command(epilog="Example:  hatcast query over-limit --speed-limit 60 --date 2022-01-15")
@click.argument("name")
@config_option
@json_option
@click.option("--speed-limit", type=FiniteRange(min=0), metavar="KM/H", help="Request this limit, for good.")
@click.option("--threshold", type=FiniteNumber(), metavar="VALUE", help="The limit with [policy.value], in its unit.")
@click.option(
    "--date",
    "day",
    callback=parsed(local_date, 'write a local date, such as "2022-01-02"'),
    metavar="DATE",
    help="A date of the period.  [default: today]",
)
def command(
    name: str, config: Path, as_json: bool, speed_limit: float | None, threshold: float | None, day: date | None
) -> None:
    """Request the limit of the query NAME for one period, or show the one that is requested.

    The policy's query has on_request = true, and has reserved its budget. Each period takes one request, until its last
    date's first hour closes; it is public and cannot be changed. A repeated request for the same limit succeeds.
    """
    settings = load_settings(config)
    query = _query_of(settings.policy, name)
    period = _period_of(settings.policy, query, day)
    policy = settings.policy
    milli = _milli_of(policy, speed_limit, threshold)
    key = request_key(settings.policy.name, name, period.first.isoformat())
    decided = asyncio.run(_decide(settings, key, milli))
    if decided is not None and milli is not None and decided.speed_limit != milli:
        raise HatcastError(f"{name}, {_dates(period)}: {_words(query, decided, policy)}; a period takes one request")
    if as_json:
        click.echo(msgspec.json.encode(_view(query, period, decided, policy)))
    else:
        click.echo(f"{name}, {_dates(period)}: {_words(query, decided, policy)}")


def _query_of(policy: Policy, name: str) -> Query:
    query = next((query for query in policy.queries if query.name == name), None)
    open_ones = ", ".join(query.name for query in policy.queries if query.on_request)
    if query is None or not query.on_request:
        reason = "is not a query of the policy" if query is None else "takes no requests: its limit is the policy's"
        fix = f"those that take requests are {open_ones}" if open_ones else "no query has on_request = true"
        raise HatcastError(f"{name!r} {reason}; {fix}")
    return query


def _period_of(policy: Policy, query: Query, day: date | None) -> Period:
    date_text = (Calendar(policy).local(now_ms()).date() if day is None else day).isoformat()
    period = query.period_of(date_text)
    if period is None:
        raise HatcastError(f"the first period of {query.name!r} begins on {query.first}: give a later --date")
    return period


def _milli_of(policy: Policy, speed_limit: float | None, threshold: float | None) -> int | None:
    """Return the requested limit in milli-units above the value's lower bound; None if none is requested."""
    option, limit = ("--speed-limit", speed_limit) if policy.value_name is None else ("--threshold", threshold)
    if (speed_limit if option == "--threshold" else threshold) is not None:
        raise click.UsageError(f"the policy's value is {policy.value_name or 'the speed'}: use {option}")
    if limit is None:
        return None
    milli, value = in_milli(limit), policy.released_value
    if milli >= value.upper:
        key, values = ("upper_bound", "speed") if policy.value is None else ("policy.value.upper", "value")
        raise HatcastError(f"{option} {limit:g} is not below {key} {value.upper / 1000:g}: no {values} exceeds it")
    if milli < value.lower:
        raise HatcastError(
            f"{option} {limit:g} is below policy.value.lower {value.lower / 1000:g}, as which smaller values count"
        )
    return milli - value.lower


def _limit_text(milli: int, policy: Policy) -> str:
    return f"{(milli + policy.lower) / 1000:g} {policy.released_value.unit}"


async def _decide(settings: Settings, key: str, milli: int | None) -> LimitRequest | None:
    """Write a request unless the period has one; return the period's."""
    await asyncio.to_thread(wait_for_broker, settings)
    registry = Registry(settings)

    def decide(facts: Facts) -> Mapping[str, bytes]:
        started = facts.policies.get(settings.policy.name)
        if started is not None and started.policy_id != settings.policy.policy_id:
            raise HatcastError(
                f"policy {settings.policy.name!r} was started with other keys than those of the configuration: name its"
                " own file with --config"
            )
        if milli is None or key in facts.values:
            return {}
        return {key: msgspec.json.encode(LimitRequest(speed_limit=milli, decided_at=utc_text(now_ms())))}

    try:
        return read_request((await registry.write(decide)).values, key)
    except UnknownTopicOrPartitionError:
        raise HatcastError(
            f"{broker_name(settings)} has no topic {registry.topic!r}: start a worker, which creates it"
        ) from None
    except KafkaError as error:
        raise HatcastError(
            f"lost the connection to {broker_name(settings)} ({type(error).__name__}): check that it runs"
        ) from None


def _words(query: Query, decided: LimitRequest | None, policy: Policy) -> str:
    if decided is None:
        return "nothing is requested yet"
    if decided.speed_limit is not None:
        return f"{_limit_text(decided.speed_limit, policy)} was requested at {decided.decided_at}"
    answer = (
        "it is not answered" if query.speed_limit is None else f"its limit is {_limit_text(query.speed_limit, policy)}"
    )
    return f"closed without a request at {decided.decided_at}: {answer}"


def _dates(period: Period) -> str:
    return f"{period.first} to {period.last}" if period.days > 1 else str(period.first)


def _view(query: Query, period: Period, decided: LimitRequest | None, policy: Policy) -> dict[str, Any]:
    requested = None if decided is None else decided.speed_limit
    limit = requested if requested is not None else query.speed_limit
    return {
        "query": query.name,
        "first_date": period.first.isoformat(),
        "last_date": period.last.isoformat(),
        "speed_limit" if policy.value_name is None else "threshold": None
        if limit is None
        else (limit + policy.lower) / 1000,
        "state": "open" if decided is None else "closed" if requested is None else "requested",
        "decided_at": None if decided is None else decided.decided_at,
    }
