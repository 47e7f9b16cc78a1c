"""A run's state in its journal: written whole now and then, and folded from there on.

Called by `runstore`, which holds the journal, and by whoever compares. Decides nothing: folding is `core.run.step`.
"""

from __future__ import annotations

from contextlib import suppress

from pydantic import TypeAdapter

from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.store.journal import Batch, Journal
from sid_protocol.errors import StoreError
from sid_protocol.events import parse_event

STATE_VERSION = 5
"""Grows when `RunState` changes shape: older snapshots are then passed over and the journal is folded."""
FOLDED_MOST = 2_000
"""Events that may be folded at each opening; a round of 32 candidates has a quarter of them."""

_state_adapter: TypeAdapter[RunState] | None = None


def _states() -> TypeAdapter[RunState]:
    global _state_adapter  # noqa: PLW0603 - built at first use, since it costs 100 ms
    if _state_adapter is None:
        _state_adapter = TypeAdapter(RunState)
    return _state_adapter


def dump_state(state: RunState) -> str:
    """Return a state as JSON."""
    return _states().dump_json(state).decode()


def load_state(text: str) -> RunState:
    """Return the state that `dump_state` wrote."""
    return _states().validate_json(text)


def fold(journal: Journal) -> RunState | None:
    """Fold a journal into the state it tells of; None while it is empty.

    Raises:
        StoreError: a newer daemon went on with it: to fold what that decided as this one would is another run.
    """
    if (newer := journal.newest_version()) > STATE_VERSION:
        raise StoreError(
            f"{journal.path} was written by a newer sid (state {newer}, this one knows {STATE_VERSION})",
            hint="use that sid",
        )
    state: RunState | None = None
    seq = 0
    newest = journal.newest_snapshot(STATE_VERSION)
    if newest is not None:
        seq, text = newest
        state = load_state(text)
    for _, body in journal.events_after(seq):
        state, _ = step(state, parse_event(body))
    return state


def fold_and_keep(journal: Journal) -> RunState | None:
    """Do as `fold`, and keep a state that took long, as after an upgrade: the next look is not to take as long."""
    state, newest = fold(journal), journal.newest_snapshot(STATE_VERSION)
    if state is not None and journal.seq - (newest[0] if newest else 0) > FOLDED_MOST:
        with suppress(StoreError):  # a disk that is full is no reason not to look
            journal.append(Batch((), {}, snapshot=(STATE_VERSION, dump_state(state))))
    return state
