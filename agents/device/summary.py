"""What a person sees of a device: one summary."""

import click
import msgspec

from hatcast.agents.sources.progress import print_counts


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a device, or a fleet, did. Numbers of its own readings and reports, no place and no value.

    readings         of its vehicles, by what became of them
    reported         HATs whose report was drawn and stored now
    reported_before  HATs that have their report already
    over_cap         HATs left out: the day's reports are used up
    forgotten        HATs of days that are too old for the state file
    sent             reports that Kafka has now, those of an earlier start included
    expired          reports that were too late to be sent
    unsent           reports that wait for the next start
    finished         False: it was stopped before its end
    """

    topic: str
    partitions: int
    readings: dict[str, int]
    reported: int
    reported_before: int
    over_cap: int
    forgotten: int
    sent: int
    expired: int
    unsent: int
    ticks: int
    seconds: float
    finished: bool

    def show(self, *, as_json: bool) -> None:
        """To standard output."""
        if as_json:
            click.echo(msgspec.json.encode(self))
            return
        ended = "" if self.finished else "stopped: "
        click.echo(
            f"{ended}read {sum(self.readings.values()):,} readings, sent {self.sent:,} reports to {self.topic}"
            f" ({self.partitions} partitions) in {self.seconds:.1f} s"
        )
        print_counts(
            (self.reported_before, "HATs have their report from before, and none is drawn again"),
            (self.over_cap, "HATs were left out: the day's reports are used up"),
            (self.forgotten, "HATs are of days too old for the state file, which may have reported them"),
            (self.expired, "reports were too late to be sent"),
            (self.unsent, "reports are kept and sent at the next start"),
        )
