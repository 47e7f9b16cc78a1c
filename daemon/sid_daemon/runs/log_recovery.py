"""Log records that a killed daemon had no time to write: the next one writes them, from the run's journal.

A record is written some milliseconds after what it tells of is durable. Called by `assembly` for each run that was active in a
daemon that was killed. What the log has of the run's last two rounds is looked up in its files; what follows is told.
"""

from __future__ import annotations

import trio

from sid_daemon.core.run import step
from sid_daemon.core.state import RunState
from sid_daemon.log.event_records import log_records
from sid_daemon.log.logs import Logs
from sid_daemon.log.record import Emit, LogRecord
from sid_daemon.runs.host import Host
from sid_daemon.runs.snapshots import FOLDED_MOST, STATE_VERSION, load_state
from sid_daemon.store.journal import Journal
from sid_daemon.store.registry import KnownRun
from sid_protocol.events import parse_event


async def tell_what_is_missing(host: Host, logs: Logs, emit: Emit, run: KnownRun) -> None:
    """Log what the journal of a run tells and the log does not.

    Args:
        host: Opens it.
        logs: The daemon's log.
        emit: Takes log records.
        run: It; not active yet.

    Raises:
        StoreError: its database cannot be read.
    """
    async with host.opened(run) as (_, store):
        shown, told = await store.read(lambda journal: (journal.shown, _of_last_rounds(journal)))
    records = [record for _, record in told]
    known = await trio.to_thread.run_sync(logs.known_of, run.run_id, records)
    if known is None:  # it was lost, or has rotated away: of all that, what was not told for sure
        known = sum(seq <= shown for seq, _ in told)
    for level, event, fields in records[known:]:
        emit(level, event, run_id=run.run_id, **fields)


def _of_last_rounds(journal: Journal) -> list[tuple[int, LogRecord]]:
    """Return the records of all events since the snapshot before the last one, each with its event's number."""
    seq, text = journal.newest_snapshot(STATE_VERSION, back=1) or (0, None)
    if journal.seq - seq > FOLDED_MOST:
        return []
    state: RunState | None = load_state(text) if text is not None else None
    found: list[tuple[int, LogRecord]] = []
    for number, body in journal.events_after(seq):
        event = parse_event(body)
        after, _ = step(state, event)
        if state is not None:  # that a run was made is told by whoever made it
            found += ((number, record) for record in log_records(state, event, after))
        state = after
    return found
