"""Speed limits that were requested for queries over days, in the registry: one a query and period.    [decisions/0014]

A request and the answers' use of it are decided by the same record: whoever writes it first, an operator or a worker
that begins to answer, fixes the limit of all answers of the period.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from hatcast.stream.errors import UNREADABLE, HatcastError
from hatcast.stream.records.fields import Instant

_REQUEST: Final = "request/"


class LimitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Decision about one period. Stored under the key `request/POLICY/QUERY/FIRST_DATE`.

    speed_limit   milli-units above the value's lower bound; None: nothing was requested before the period's
                  answers began
    decided_at    when the record was written
    """

    speed_limit: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None
    decided_at: Instant

    def encoded(self) -> bytes:
        """Return the encoded record."""
        return msgspec.json.encode(self)


def request_key(policy: str, query: str, first_date: str) -> str:
    """Return the key of the decision about a period."""
    return f"{_REQUEST}{policy}/{query}/{first_date}"


def read_request(values: Mapping[str, bytes], key: str) -> LimitRequest | None:
    """Return the decision with a key; None if there is none yet. Raises HatcastError if it cannot be decoded."""
    if (value := values.get(key)) is None:
        return None
    try:
        return msgspec.json.decode(value, type=LimitRequest)
    except UNREADABLE:
        raise HatcastError(
            f"the registry's record {key!r} cannot be read: a newer hatcast or another program wrote it; start the"
            " newer version"
        ) from None
