"""The state of a policy's tracker in a ledger, before its next day.    [docs/specification/tracker.md, section 4]"""

from hatcast.stream.ledger import rows
from hatcast.stream.ledger.recovery import require_recovered
from hatcast.stream.ledger.view import DamagedRow, Decision, Draft, View, text_of, with_checksum, without_checksum


def state_of(view: View, name: str) -> bytes | None:
    """Return the state after the last day that was settled; None if there is none. Raises DamagedRow."""
    key = rows.tracker(name)
    date, state = view.get(key, "date"), view.get(key, "state")
    if date is None and state is None:
        return None
    if date is None or state is None:
        raise DamagedRow(key)
    return without_checksum(f"{key}/{text_of(key, date)}", state)


def store_state(view: View, name: str, date: str, state: bytes, token: str | None) -> Decision[None]:
    """Store the state after a local date, unless that of this date or a later one is stored.

    token   of the finished recovery; None: of a store that only this process writes
    Raises Unrecovered.
    """
    draft, key = Draft(view), rows.tracker(name)
    if token is not None:
        require_recovered(draft, token)
    stored = draft.compare(key, "date")
    if stored is None or stored < date.encode():
        draft.set(key, "date", date.encode())
        draft.set(key, "state", with_checksum(f"{key}/{date}", state))
    return Decision(None, draft.changes)
