"""Releases and answers as they are proposed to a ledger."""

from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.proposals import AnswerProposal, Proposal, StateChange
from hatcast.stream.records.fields import Status
from hatcast.stream.release.continual_records import ContinualRelease
from hatcast.stream.release.hats import Release
from hatcast.stream.release.queries import QueryRelease
from hatcast.stream.release.tracker_records import TrackerRelease

AnyRelease = Release | QueryRelease | TrackerRelease | ContinualRelease


def proposal_of(
    release: Release | TrackerRelease | ContinualRelease,
    at_ms: int,
    release_partition: int,
    closes: Status | None = None,
) -> Proposal:
    """Return a release as proposed to the ledger by the owner of a release partition.

    closes   of a running sum: status with which its horizon ends
    """
    change = None
    if isinstance(release, ContinualRelease):
        ends = None if closes is None else closes.value
        change = StateChange(release.horizon.first, release.cell, release.before, release.state, ends)
    return Proposal(
        release_id=release.release_id,
        date=release.date,
        place=release.place,
        charge=release.charge,
        record=release.record(at_ms),
        exhausted=release.exhausted().record(at_ms),
        fineness=release.fineness,
        change=change,
        release_partition=release_partition,
    )


def answer_proposal_of(answer: QueryRelease, at_ms: int, release_partition: int) -> AnswerProposal:
    """Return an answer as proposed to the ledger by the owner of a release partition."""
    query_period = answer.query_period
    return AnswerProposal(
        release_id=answer.release_id,
        date=answer.date,
        dates=query_period.period.dates,
        query=query_period.query.name,
        reserved=Reserved(query_period.policy.most_hats, query_period.query.epsilon_nano),
        record=answer.record(at_ms),
        exhausted=(answer.exhausted() if answer.status == Status.RELEASED else answer).record(at_ms),
        release_partition=release_partition,
    )
