"""What a recovery reads of a published record is what its release has proposed to the ledger, for every method."""

from typing import get_args

import pytest

from hatcast.stream.ledger.adoption import Answered
from hatcast.stream.ledger.day import Reserved, own_reservation
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.policy.policy import Method
from hatcast.stream.records.fields import Status
from hatcast.stream.release.hats import Release
from hatcast.stream.release.placed import Placed
from hatcast.stream.release.published import published_of
from hatcast.stream.release.queries import QueryRelease
from hatcast.stream.release.spending import fineness_of
from tests.contracts.goldens import NEXT_MS, NOW_MS, answers, releases

RELEASES = dict(releases())
ANSWERS = dict(answers())


@pytest.mark.parametrize("case", RELEASES)
def test_a_release_is_charged_again_as_it_was_proposed(case: str) -> None:
    release = RELEASES[case]
    policy, proposal = release.policy, release.proposal(NOW_MS, 0)
    read = published_of(numbered(proposal.record, 4711), policy.policy_id, fineness_of(policy))
    assert (read.release_id, read.date) == (proposal.release_id, proposal.date)
    assert (read.place, read.charge, read.fineness) == (proposal.place, proposal.charge, proposal.fineness)
    own = own_reservation(policy, proposal.date) if release.status is Status.RELEASED else {}
    assert own == ({} if read.answered is None else _reserved(read.answered, proposal.date))


def _reserved(answered: Answered, date: str) -> dict[str, Reserved]:
    assert tuple(answered.period.dates) == (date,)
    return {answered.query: Reserved(answered.places, answered.epsilon)}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_is_reserved_again_as_it_was_proposed(case: str) -> None:
    answer: QueryRelease = ANSWERS[case]
    policy, proposal = answer.query_period.policy, answer.proposal(NEXT_MS, 0)
    read = published_of(numbered(proposal.record, 4711), policy.policy_id, fineness_of(policy))
    assert (read.release_id, read.charge, read.place) == (proposal.release_id, 0, "")
    reserved = read.answered
    assert (reserved is not None) == (answer.status is Status.RELEASED)
    if reserved is not None:
        assert (reserved.query, tuple(reserved.period.dates)) == (proposal.query, tuple(proposal.dates))
        assert (reserved.places, reserved.epsilon) == (proposal.reserved.places, proposal.reserved.epsilon)


def test_the_cases_have_every_method_and_a_charge() -> None:
    """So that a new method without a case, whose charge a recovery would not know, is noticed here."""
    placed: list[Placed] = list(RELEASES.values())
    assert {type(each.policy.method) for each in placed} == set(get_args(Method))
    assert any(each.charge for each in placed if isinstance(each, Release))
