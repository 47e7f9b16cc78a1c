"""What agents may know of a run: the `Track` protocol, read from the conductor's state and the journal.

Given to role actors by the composition root. Reads only; a round's facts come from memory, earlier rounds
from the run's database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sid_actors.track import Attempt, Told
from sid_daemon.core.longterm.ladder import rung_of
from sid_daemon.core.longterm.learning import rule_of, told_to
from sid_daemon.core.longterm.lessons import usefulness
from sid_daemon.core.state import RunState
from sid_daemon.layout import ARCHIVE, CANDIDATES, MEMORY, history_path, of_round
from sid_daemon.runs.runstore import RunStore
from sid_daemon.store.documents import render_list
from sid_daemon.store.journal import Journal
from sid_protocol.records import (
    FAMILIES,
    BenchmarkResult,
    IterationHistory,
    Plan,
    ResearchBrief,
)
from sid_protocol.settings import Settings

T = TypeVar("T")


class RunTrack:
    """A run as agents see it.

    Args:
        state: Returns the run's present state.
        store: The run's database.
    """

    def __init__(self, state: Callable[[], RunState], store: RunStore) -> None:
        self._state = state
        self._store = store
        self._memory: tuple[int, str] | None = None
        self._histories = _Recorded(store, _read_history)
        self._attempts = _Recorded(store, _read_attempts)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._state().run_id

    @property
    def repo(self) -> str:
        """Absolute path of the repository."""
        return self._state().repo

    @property
    def root(self) -> str:
        """Absolute path of the track's root."""
        return self._state().root

    @property
    def topic(self) -> str:
        """The topic's slug."""
        return self._state().topic

    @property
    def settings(self) -> Settings:
        """The settings of the current round."""
        return self._state().settings

    @property
    def goal(self) -> str:
        """`goal.md` as it was when the round began."""
        return self._state().goal

    @property
    def rules(self) -> tuple[str, ...]:
        """The user's own rules."""
        return self._state().rules

    @property
    def families(self) -> tuple[str, ...]:
        """All approach families, the custom ones last."""
        return (*FAMILIES, *(name for name in self._state().families if name not in FAMILIES))

    @property
    def sealed(self) -> tuple[str, ...]:
        """Paths that no candidate may change."""
        return self._state().sealed

    @property
    def ideas(self) -> tuple[str, ...]:
        """The user's ideas taken for this round."""
        now = self._state().round
        return now.ideas if now else ()

    @property
    def brief(self) -> ResearchBrief | None:
        """This round's brief."""
        now = self._state().round
        return now.brief if now else None

    @property
    def streak_family(self) -> str | None:
        """The family that H002 bars."""
        return self._state().streak_family

    @property
    def winner_families(self) -> tuple[str | None, ...]:
        """The winning family of each of the last rounds, oldest first."""
        return self._state().winner_families

    @property
    def best_score(self) -> float | None:
        """The incumbent's score."""
        return self._state().best_score

    def lessons(self, role: str) -> tuple[Told, ...]:
        """Return the lessons that stand in a role's prompts this round, the most useful first."""
        state = self._state()
        keys = [key for key in (state.round.lessons_told if state.round else ()) if told_to(key, role)]
        ordered = sorted(keys, key=lambda key: usefulness(state.lessons, key), reverse=True)
        traces = state.lessons.traces
        return tuple(Told(rule_of(key), traces[key].snippets if key in traces else ()) for key in ordered)

    @property
    def ladder(self) -> str | None:
        """What a run that is stuck is to do otherwise in this round."""
        rung = rung_of(self._state().dry_rounds)
        return rung.told if rung else None

    async def memory(self) -> str:
        """Return what the run has learnt."""
        done = self._state().completed
        if self._memory is None or self._memory[0] != done:
            self._memory = done, await self._store.read(_read_memory)
        return self._memory[1]

    async def history(self, last: int) -> list[IterationHistory]:
        """Return the last `last` recorded rounds, oldest first."""
        return list((await self._histories.of(self._last(last))).values())

    async def attempts(self, last: int) -> list[Attempt]:
        """Return every candidate of the last `last` recorded rounds, oldest first."""
        found = await self._attempts.of(self._last(last))
        return [attempt for attempts in found.values() for attempt in attempts]

    def _last(self, last: int) -> range:
        done = self._state().completed
        return range(max(1, done - last + 1), done + 1)


class _Recorded(Generic[T]):
    """What was read of the newest recorded rounds: every turn of a round asks for the same.

    Args:
        store: The run's database.
        read: Reads a round, which may not be there.
    """

    def __init__(self, store: RunStore, read: Callable[[Journal, int], T | None]) -> None:
        self._store = store
        self._read = read
        self._known: dict[int, T | None] = {}
        self._widest = 0

    async def of(self, rounds: range) -> dict[int, T]:
        """Return rounds by their number; only the widest range asked for is kept."""
        missing = [number for number in rounds if number not in self._known]
        if missing:
            self._known.update(
                await self._store.read(lambda journal: {one: self._read(journal, one) for one in missing})
            )
            self._widest = max(self._widest, len(rounds))
            for number in [one for one in self._known if one < rounds.stop - self._widest]:
                del self._known[number]
        known = {number: self._known.get(number) for number in rounds}
        return {number: one for number, one in known.items() if one is not None}


def _read_memory(journal: Journal) -> str:
    entries = journal.entries(MEMORY)
    return render_list(MEMORY, entries) if entries else ""


def _read_history(journal: Journal, iteration: int) -> IterationHistory | None:
    text = journal.document(history_path(iteration))
    return None if text is None else IterationHistory.model_validate_json(text)


def _read_attempts(journal: Journal, iteration: int) -> list[Attempt] | None:
    history = _read_history(journal, iteration)
    if history is None:
        return None
    bodies = (body for _, body in journal.documents(of_round(ARCHIVE, iteration)))
    plans = {plan.plan_id: plan for plan in map(Plan.model_validate_json, bodies)}
    attempts = []
    for _, body in journal.documents(of_round(CANDIDATES, iteration)):
        result = BenchmarkResult.model_validate_json(body)
        plan, failure = plans.get(result.plan_id), result.failure_analysis
        if plan is not None:
            attempts.append(
                Attempt(
                    iteration=iteration,
                    family=plan.approach_family,
                    score=result.benchmark_score,
                    won=history.winner is not None and history.winner.plan_id == result.plan_id,
                    failure=f"{failure.category}: {failure.why}" if failure else None,
                    before=history.baseline_score,
                    extra=plan.model_extra or {},
                )
            )
    return attempts
