"""What a run's database tells of its rounds, read beside the run a little at a time. Used by the methods that show them."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator

from sid_daemon.layout import history_path, report_path
from sid_daemon.runs.runstore import RunStore
from sid_daemon.store.journal import Journal
from sid_protocol.events import RunMeasured, parse_event
from sid_protocol.records import IterationHistory, MergeReport

PAGE = 50
"""Rounds that are read at a time: meanwhile a run that is under way records nothing."""


async def recorded_rounds(
    store: RunStore, first: int, last: int
) -> AsyncIterator[tuple[IterationHistory, MergeReport]]:
    """Yield history and merge report of recorded rounds, from one to another."""
    for begin in range(first, last + 1, PAGE):
        rounds = range(begin, min(begin + PAGE, last + 1))
        for history, report in await store.read(functools.partial(_reports, rounds=rounds)):
            yield IterationHistory.model_validate_json(history), MergeReport.model_validate_json(report)


async def measured_runs(store: RunStore, iteration: int) -> list[RunMeasured]:
    """Return every benchmark run of a round, in the order in which they became durable."""
    texts = await store.read(functools.partial(_measured, iteration=iteration))
    found = [parse_event(text) for text in texts if f'"cause":"r{iteration}.' in text]
    runs = [one for one in found if isinstance(one, RunMeasured)]
    return [run for one in runs for run in (one, one.beside) if run is not None]


def _reports(journal: Journal, rounds: range) -> list[tuple[str, str]]:
    found = []
    for iteration in rounds:
        history = journal.document(history_path(iteration))
        report = journal.document(report_path(iteration))
        if history is not None and report is not None:
            found.append((history, report))
    return found


def _measured(journal: Journal, iteration: int) -> list[str]:
    # What a round measured lies between the end of the round before it and its own.
    begun = journal.written_at(history_path(iteration - 1))
    ended = journal.written_at(history_path(iteration))
    return journal.events_of_kind("run_measured", begun or 0, journal.seq if ended is None else ended)
