"""The RPC methods of lessons: what a run has learned, what all runs have, ending one by hand.

Served by `dispatcher` beside the methods of runs, put together by `assembly`. The rules are the core's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import trio

from sid_daemon.core.longterm.lessons import forget
from sid_daemon.core.state import RunState
from sid_daemon.layout import history_path
from sid_daemon.runs.host import Host
from sid_daemon.runs.runstore import RunStore
from sid_daemon.store.registry import KnownRun
from sid_daemon.store.views_lessons import track_lessons
from sid_protocol.errors import Refused
from sid_protocol.events import LessonForgotten
from sid_protocol.params import LessonsParams, NoParams
from sid_protocol.records import ForceKill, IterationHistory
from sid_protocol.status import AllLessonsResult, LessonsResult

ROUNDS_LOOKED_AT = 100
"""Newest rounds whose force-kills are told."""


class LessonMethods:
    """What clients ask about lessons.

    Args:
        host: The daemon's runs.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    def handlers(self) -> Mapping[str, Callable[[Any, Any], Awaitable[Any]]]:
        """Return method → what carries it out."""
        return {
            "run.lessons": self.lessons,
            "daemon.lessons": self.all_lessons,
        }

    async def lessons(self, params: LessonsParams, _call: object) -> LessonsResult:
        """`run.lessons`."""
        run = await self._host.find(params.run, params.topic)
        if params.forget is not None:
            await self._forget(run, params.forget)
        async with self._host.opened(run) as (state, store):
            book = state.lessons
            if params.forget is not None:  # a live run takes it up in its own time
                book = forget(book, params.forget, state.completed)
            return LessonsResult(
                run_id=run.run_id,
                lessons=track_lessons(replace(state, lessons=book), "").lessons,
                force_kills=await _kills(state, store),
            )

    async def _forget(self, run: KnownRun, key: str) -> None:
        async with self._host.opened(run) as (state, _):
            _check(run, state, key)
        await self._host.take_in(run, LessonForgotten(lesson=key))

    async def all_lessons(self, _params: NoParams, _call: object) -> AllLessonsResult:
        """`daemon.lessons`."""
        kept = await trio.to_thread.run_sync(self._host.lessons.read)
        return AllLessonsResult(tracks=list(kept.tracks), unreadable=list(kept.unreadable))


def _check(run: KnownRun, state: RunState, key: str) -> None:
    if key not in state.lessons.in_force:
        raise Refused(
            f"run {run.run_id} has no lesson {key!r} in force",
            hint=f"'sictl lessons {run.run_id}' lists them",
        )


async def _kills(state: RunState, store: RunStore) -> list[ForceKill]:
    """Return the force-kills of the newest rounds, oldest first."""
    found: list[ForceKill] = []
    for iteration in range(max(1, state.completed - ROUNDS_LOOKED_AT + 1), state.completed + 1):
        text = await store.document(history_path(iteration))
        if text is not None:
            found += IterationHistory.model_validate_json(text).force_kills
    return [*found, *(state.round.kills if state.round else ())]
