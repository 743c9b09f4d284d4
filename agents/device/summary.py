"""Summary of a device's run."""

import msgspec

from hatcast.agents.sources.progress import print_summary


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a device or a fleet: counts only, no places and no values.

    readings         readings of its vehicles, by outcome
    reported         HATs whose report was drawn and stored now
    reported_before  HATs whose report was drawn before
    over_cap         HATs without a report: the day's reports are used up
    forgotten        HATs of days that are too old for the state file
    uncertified      HATs without a report: no certified key of their date is left to sign with
    sent             reports acknowledged by Kafka, also those of earlier starts
    expired          reports that were too late to be sent
    unsent           reports to send at the next start
    ticks            heartbeat records sent
    answered         rounds of clusterings answered now
    rejected         rounds with parameters that the policy does not allow, or for which no budget was left
    finished         False: stopped before its end
    """

    topic: str
    partitions: int
    readings: dict[str, int]
    reported: int
    reported_before: int
    over_cap: int
    forgotten: int
    uncertified: int
    sent: int
    expired: int
    unsent: int
    ticks: int
    answered: int
    rejected: int
    seconds: float
    finished: bool

    def show(self, *, as_json: bool) -> None:
        """Print to standard output."""
        print_summary(
            self,
            f"{'' if self.finished else 'stopped: '}read {sum(self.readings.values()):,} readings, sent {self.sent:,}"
            f" reports to {self.topic} ({self.partitions} partitions) in {self.seconds:.1f} s",
            (self.reported_before, "HATs were reported before and are not reported again"),
            (self.over_cap, "HATs are not reported: the day's reports are used up"),
            (self.forgotten, "HATs are too old for the state file and may have been reported"),
            (self.uncertified, "HATs are not reported: the state file has no certified key of their date"),
            (self.expired, "reports were too late to be sent"),
            (self.unsent, "reports are stored and will be sent at the next start"),
            (self.answered, "rounds of clusterings were answered"),
            (self.rejected, "rounds of clusterings were rejected: other parameters, or no budget left"),
            as_json=as_json,
        )
