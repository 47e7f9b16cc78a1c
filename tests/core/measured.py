"""A table-top benchmark for tests of measuring: answers what the core asks for, and keeps the list of asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from pydantic import TypeAdapter

from sid_daemon.core.measuring.selection import begin, next_ask, on_merge, on_run
from sid_daemon.core.measuring.words import (
    Ask,
    AskHoldout,
    AskMerge,
    AskRun,
    Candidate,
    Policy,
    RunResult,
    Selection,
    SelectionHistory,
    Verdict,
)

STORED = TypeAdapter(Selection)
Score = float | str | RunResult
"""A score, or "error", "timeout", or a whole result."""
Table = Mapping[str, Score | Iterable[Score]]


def run(arm: str, score: Score, **sub_scores: float) -> RunResult:
    if isinstance(score, RunResult):
        return score
    if score == "timeout":
        return RunResult(arm, None, {}, "timeout")
    if isinstance(score, str):
        return RunResult(arm, None, {}, "error")
    return RunResult(arm, score, sub_scores, "success", cpu_s=1.0, wall_s=2.0)


def candidates(*smokes: Score, lines: int = 1) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(f"executor_{k}", run(f"executor_{k}", smoke), lines) for k, smoke in enumerate(smokes, 1)
    )


def policy(**changes) -> Policy:
    return Policy(**{"direction": "higher_is_better", "mode": "deterministic", **changes})


def selection(
    smokes: Iterable[Score] | tuple[Candidate, ...],
    *,
    best: float | None = 100.0,
    history: SelectionHistory | None = None,
    iteration: int = 1,
    **changes,
) -> Selection:
    entries = tuple(smokes)
    found = tuple(one for one in entries if isinstance(one, Candidate)) or candidates(*entries)  # type: ignore[arg-type]  # either all candidates or all scores
    return begin(
        policy(**changes),
        incumbent_score=best,
        history=history or SelectionHistory(),
        candidates=found,
        iteration=iteration,
    )


class Bench:
    """Answers asks from a table: a score for each run of an arm, or a list of them, the last for good.

    A hold-out run of an arm is looked up as "holdout A", "holdout merged". With `store`, the state goes through
    JSON between any two answers.
    """

    def __init__(
        self,
        table: Table | Callable[[Ask], Score],
        *,
        conflicts: Iterable[str] = (),
        store: bool = False,
        most: int = 1000,
    ) -> None:
        self._answer = table if callable(table) else self._from(table)
        self._conflicts = set(conflicts)
        self._store = store
        self._most = most
        self.asks: list[Ask] = []
        self.states: list[Selection] = []
        self.merging = ""

    @staticmethod
    def _from(table: Table) -> Callable[[Ask], Score]:
        rows: dict[str, Iterator[Score]] = {}
        last: dict[str, Score] = {}

        def answer(ask: Ask) -> Score:
            arm = f"holdout {ask.arm}" if isinstance(ask, AskHoldout) else ask.arm
            given = table[arm]
            if isinstance(given, float | int | str | RunResult):
                return given
            row = rows.setdefault(arm, iter(given))
            last[arm] = next(row, last.get(arm, "error"))
            return last[arm]

        return answer

    def judge(self, state: Selection) -> Verdict:
        while True:
            self.states.append(state)
            ask = next_ask(state)
            if isinstance(ask, Verdict):
                return ask
            self.asks.append(ask)
            assert len(self.asks) <= self._most, "no verdict in sight"
            if isinstance(ask, AskMerge):
                self.merging = ask.arm
                state = on_merge(state, ask.arm, conflict=ask.arm in self._conflicts)
            else:
                state = on_run(state, run(ask.arm, self._answer(ask)))
            if self._store:
                state = STORED.validate_json(STORED.dump_json(state))

    def told(self) -> list[str]:
        """The asks in short: "merge executor_1", "A check", "holdout A"."""
        return [
            f"merge {ask.arm}"
            if isinstance(ask, AskMerge)
            else f"{ask.arm} {ask.stage}"
            if isinstance(ask, AskRun)
            else f"holdout {ask.arm}"
            for ask in self.asks
        ]
