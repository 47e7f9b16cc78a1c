"""What agents may know of a run: the `Track` protocol, read from the conductor's state and the journal.

Given to role actors by the composition root. Reads only; a round's facts come from memory, earlier rounds
from the run's database.
"""

from __future__ import annotations

from collections.abc import Callable

from sid_actors.track import Attempt, Told
from sid_daemon.core.ladder import rung_of
from sid_daemon.core.learning import rule_of, told_to
from sid_daemon.core.lessons import usefulness
from sid_daemon.core.state import RunState
from sid_daemon.runstore import RunStore
from sid_daemon.store.documents import MEMORY, render_list
from sid_protocol.records import (
    FAMILIES,
    BenchmarkResult,
    IterationHistory,
    Plan,
    ResearchBrief,
)
from sid_protocol.settings import Settings


class RunTrack:
    """A run as agents see it.

    Args:
        state: Returns the run's present state.
        store: The run's database.
    """

    def __init__(self, state: Callable[[], RunState], store: RunStore) -> None:
        self._state = state
        self._store = store
        self._attempts: dict[int, list[Attempt]] = {}

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
        entries = await self._store.entries(MEMORY)
        return render_list(MEMORY, entries) if entries else ""

    async def history(self, last: int) -> list[IterationHistory]:
        """Return the last `last` recorded rounds, oldest first."""
        done = self._state().completed
        rounds = []
        for iteration in range(max(1, done - last + 1), done + 1):
            text = await self._store.document(f"state/iteration_history/round_{iteration}.json")
            if text is not None:
                rounds.append(IterationHistory.model_validate_json(text))
        return rounds

    async def attempts(self) -> list[Attempt]:
        """Return every candidate of every recorded round, oldest first."""
        for iteration in range(1, self._state().completed + 1):
            if iteration not in self._attempts:
                self._attempts[iteration] = await self._read_attempts(iteration)
        return [attempt for iteration in sorted(self._attempts) for attempt in self._attempts[iteration]]

    async def _read_attempts(self, iteration: int) -> list[Attempt]:
        text = await self._store.document(f"state/iteration_history/round_{iteration}.json")
        if text is None:
            return []
        winner = IterationHistory.model_validate_json(text).winner
        plans = {}
        for _, body in await self._store.documents(f"state/plan_archive/round_{iteration}/"):
            plan = Plan.model_validate_json(body)
            plans[plan.plan_id] = plan
        attempts = []
        for _, body in await self._store.documents(f"state/benchmark_results/round_{iteration}/"):
            result = BenchmarkResult.model_validate_json(body)
            failure = result.failure_analysis
            if result.plan_id in plans:
                attempts.append(
                    Attempt(
                        iteration=iteration,
                        plan=plans[result.plan_id],
                        score=result.benchmark_score,
                        won=winner is not None and winner.plan_id == result.plan_id,
                        failure=f"{failure.category}: {failure.why}" if failure else None,
                    )
                )
        return attempts
