"""What is written of a round when it is over: history, merge report, raw data, rows of the results table.

Pure functions of the round as it was when it was closed, called by `views`; also the source of a single
candidate's benchmark result. Nothing is decided here: verdict, scores and reasons are the core's.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from typing import Literal

from sid_daemon.core.describe import describe
from sid_daemon.core.longterm.ladder import rung_of
from sid_daemon.core.measuring.words import CandidateOutcome, Verdict
from sid_daemon.core.rounds.novelty import Tried
from sid_daemon.core.state import Execution, Round, RunState
from sid_daemon.core.wording import one_line
from sid_daemon.figures import difference, signed
from sid_protocol import ids
from sid_protocol.records import (
    BenchmarkResult,
    Durations,
    Entrant,
    Evidence,
    IterationHistory,
    Loser,
    MergedWinner,
    MergeReport,
    RawEntry,
    ResultRow,
    RoleCost,
)

Status = Literal["merged", "no_improvement", "no_winner", "all_rejected", "blocked"]
RowStatus = Literal["baseline", "keep", "keep (reworked)", "discard", "crash", "no-op", "metric-error"]


def ranked(now: Round) -> list[Execution]:
    """Return a round's executions by their number."""
    return sorted(now.executions.values(), key=lambda one: ids.executor_number(one.executor))


def won(now: Round) -> Verdict | None:
    """Return the verdict if its winner is merged; a verdict alone is no win, as the branch may have moved."""
    return now.verdict if now.winner_commit is not None else None


def outcome_of(now: Round, one: Execution) -> CandidateOutcome | None:
    """Return what the measuring core said of a candidate, if it did."""
    return now.verdict.outcomes.get(one.executor) if now.verdict else None


def _sub_scores(now: Round, one: Execution) -> dict[str, float]:
    outcome = outcome_of(now, one)
    if outcome is not None and outcome.sub_scores:
        return dict(outcome.sub_scores)
    return dict(one.smoke.sub_scores) if one.smoke else {}


def benchmark_result(now: Round, one: Execution) -> BenchmarkResult:
    """Return contract 2 of a candidate that has ended."""
    outcome = outcome_of(now, one)
    return BenchmarkResult.model_validate(
        {
            "executor_id": one.executor,
            "plan_id": one.plan.plan_id,
            "benchmark_score": one.score,
            "benchmark_raw": one.raw,
            "status": one.result,
            "sub_scores": _sub_scores(now, one),
            "failure_analysis": one.failure,
            "timestamp": one.measured_at,
            "measurement": outcome.measurement if outcome else None,
            "force_kill": one.kill,
            "commit": one.commit,
            "diff_stat": one.diff_stat,
            "cost": one.cost,
            "durations": Durations(agent_s=one.agent_s, benchmark_s=one.benchmark_s),
            "findings": list(one.findings),
            "summary": one.summary,
        }
    )


def history(state: RunState, now: Round, ended_at: str, tags: Mapping[str, str]) -> IterationHistory:
    """Return contract 4 of a round.

    Args:
        state: The run before the round was counted.
        now: The round.
        ended_at: When it was closed, ISO 8601.
        tags: Executor → the tag under which its candidate is kept.
    """
    verdict = won(now)
    winner = now.executions[verdict.winner] if verdict and verdict.winner else None
    return IterationHistory(
        iteration=now.iteration,
        baseline_score=now.baseline_score,
        winner=_entrant(now, winner, verdict) if winner and verdict else None,
        losers=[
            Loser(
                plan_id=one.plan.plan_id,
                score=one.score,
                approach_family=one.plan.approach_family,
                hypothesis=one.plan.hypothesis,
                sub_scores=_sub_scores(now, one),
                failure_analysis=one.failure,
            )
            for one in ranked(now)
            if one is not winner
        ],
        research_brief_id=f"round_{now.iteration}",
        rejected_plans=list(now.rejected),
        force_kills=list(now.kills),
        agent_failures=list(now.failures),
        evidence=evidence(state, now, tags),
        started_at=now.started_at,
        ended_at=ended_at,
        cost=now.cost,
        ladder=rung.name if (rung := rung_of(state.dry_rounds)) else None,
        costs=[RoleCost(role=role, **asdict(one)) for role, one in now.spent.items()],
    )


def _entrant(now: Round, one: Execution, verdict: Verdict) -> Entrant:
    return Entrant(
        plan_id=one.plan.plan_id,
        score=verdict.score_after,
        approach_family=one.plan.approach_family,
        hypothesis=one.plan.hypothesis,
        sub_scores=_sub_scores(now, one),
    )


def evidence(state: RunState, now: Round, tags: Mapping[str, str]) -> list[Evidence]:
    """Return what a reader can check of a round: claim, command, output, verdict; nothing where there was no candidate.

    The round's own first, then what detectors saw in candidates, one each, and which were tried before. A finalist that
    was neither proven nor given up may stand again, and the next round's agents are told so.
    """
    if not now.executions:
        return []
    found = [_of_findings(state, one) for one in ranked(now) if one.findings]
    found += [_of_repetition(state, now, one, one.repeats) for one in ranked(now) if one.repeats]
    return [_of_round(state, now, tags), *found]


def _of_round(state: RunState, now: Round, tags: Mapping[str, str]) -> Evidence:
    verdict = now.verdict
    metric, command = state.settings.primary_metric, state.settings.benchmark_command
    lines = [_output_line(now, one) for one in ranked(now)]
    output = "\n".join([*lines, *([describe(verdict)] if verdict else [])])
    merged = won(now)
    if merged is None or merged.winner is None:
        _, reason = status_of(state, now)
        claim = f"no candidate of round {now.iteration} improves {metric} from {now.incumbent_score!r}"
        told = f"not merged: {reason}"
        kept = tags.get(verdict.finalist or "") if verdict else None
        if verdict and kept and verdict.pairs and (reason or "").startswith("inconclusive"):
            told = f"{told}; {verdict.finalist} is kept as {kept} and may stand again"
        return Evidence(claim=claim, command=command, output=output, verdict=told)
    winner = now.executions[merged.winner]
    claim = f"{one_line(winner.plan.hypothesis)}: {metric} {merged.score_before!r} → {merged.score_after!r}"
    again = reproduce(state.repo, now.winner_commit or "", command, now.iteration)
    told = f"merged as {now.winner_commit}; measure it again: {again}"
    return Evidence(claim=claim, command=command, output=output, verdict=told)


def _of_findings(state: RunState, one: Execution) -> Evidence:
    count = f"{len(one.findings)} finding{'s' if len(one.findings) > 1 else ''}"
    refused = one.failure is not None and one.failure.category in ("sealed_file_violation", "scope_error")
    rejected = refused or one.repeats is not None
    return Evidence(
        claim=f"{one.executor}: {count} in its changes",
        command=f"git -C {shlex.quote(state.repo)} diff {one.base} {one.commit}",
        output="\n".join(one.findings),
        verdict="rejected, and not measured" if rejected else "warned of, and measured all the same",
    )


def _of_repetition(state: RunState, now: Round, one: Execution, earlier: Tried) -> Evidence:
    return Evidence(
        claim=f"{one.executor} of round {now.iteration} makes the same change as {earlier.name}",
        command=f"git -C {shlex.quote(state.repo)} diff {earlier.commit} {one.commit}",
        output=f"{earlier.name}: {earlier.result}",
        verdict="tried before, so it is not measured; the two differ in layout and comments at most",
    )


def _why_not(now: Round, one: Execution) -> str:
    """Return in one line why a candidate is not the winner; empty for the winner."""
    outcome = outcome_of(now, one)
    return one_line((outcome.why if outcome else None) or (one.failure.what if one.failure else ""))


def _output_line(now: Round, one: Execution) -> str:
    why = _why_not(now, one)
    line = f"{one.executor}: {'no score' if one.score is None else repr(one.score)} ({one.result})"
    return f"{line}: {why}" if why else line


def reproduce(repo: str, commit: str, command: str, iteration: int) -> str:
    """Return the shell line that measures a commit again, in a checkout of its own."""
    return (
        f'd=$(mktemp -d) && git -C {shlex.quote(repo)} worktree add --detach "$d" {commit} '
        f'&& cd "$d" && SID_ITERATION={iteration} sh -c {shlex.quote(command)}'
    )


def status_of(state: RunState, now: Round) -> tuple[Status, str | None]:
    """Return how a round ended, and why nothing was merged; the reason is None when something was."""
    if now.winner_commit is not None:
        return "merged", None
    if now.blocked:
        killed = sum(1 for one in now.executions.values() if one.kill is not None)
        return "blocked", f"{killed} force-kills reached kill_threshold {state.settings.kill_threshold}"
    if not now.approved and now.rejected:
        reasons = "; ".join(f"{one.plan_id}: {one.rejection_reason}" for one in now.rejected)
        return "all_rejected", reasons[:2000]
    if not now.approved:
        return "no_winner", "no planner produced a plan"
    verdict = now.verdict
    if verdict is None and all(one.repeats for one in now.executions.values()):
        return "no_winner", "every candidate only repeats one that was tried before"
    if verdict is None:
        return "no_winner", "no candidate gave a valid score"
    if verdict.status == "merged":
        return "no_winner", f"{verdict.winner} was not merged: the improvement branch was moved meanwhile"
    return verdict.status, verdict.reason


def merge_report(state: RunState, now: Round, tags: Mapping[str, str]) -> MergeReport:
    """Return contract 9 of a round.

    Args:
        state: The run before the round was counted.
        now: The round.
        tags: Executor → the tag under which its candidate is kept.
    """
    status, reason = status_of(state, now)
    verdict, merged = now.verdict, won(now)
    winner = None
    if merged is not None and merged.winner is not None:
        one = now.executions[merged.winner]
        winner = MergedWinner.model_validate(
            {
                "executor_id": one.executor,
                "branch": ids.experiment_branch(state.topic, now.iteration, one.executor),
                "hypothesis": one.plan.hypothesis,
                "score_before": merged.score_before,
                "score_after": merged.score_after,
                "sub_scores": _sub_scores(now, one),
                "commit": now.winner_commit,
                "direction": state.settings.benchmark_direction,
            }
        )
    regressed = any(one.result == "regression" for one in now.executions.values())
    return MergeReport.model_validate(
        {
            "iteration": now.iteration,
            "goal_slug": state.goal_slug,
            "winner": winner,
            "archived": [tags[key] for key in sorted(tags, key=ids.executor_number)],
            "regressions_detected": regressed or bool(verdict and verdict.regressions_detected),
            "re_benchmark_score": verdict.score_after if verdict else None,
            "status": status,
            "reason": reason,
            "measurement": verdict.measurement if verdict else None,
        }
    )


def raw_entries(now: Round) -> list[RawEntry]:
    """Return contract 5 of a round: one entry a candidate."""
    verdict = won(now)
    return [
        RawEntry.model_validate(
            {
                "iteration": now.iteration,
                "plan_id": one.plan.plan_id,
                "benchmark_score": one.score,
                "is_winner": verdict is not None and verdict.winner == one.executor,
                "approach_family": one.plan.approach_family,
                "sub_scores": _sub_scores(now, one),
                "measurement": _figures(outcome_of(now, one)),
            }
        )
        for one in ranked(now)
    ]


def _figures(outcome: CandidateOutcome | None) -> dict[str, object] | None:
    if outcome is None or outcome.measurement is None:
        return None
    found = outcome.measurement
    names = {"n": "n", "gain": "gain", "ci": "interval", "p": "p", "mode": "mode", "sd_pair": "sd_pair"}
    return {ours: found.get(theirs) for ours, theirs in names.items()}


def result_rows(now: Round) -> list[ResultRow]:
    """Return contract 14 of a round: one row a candidate."""
    verdict, before = won(now), now.incumbent_score
    rows = []
    for one in ranked(now):
        is_winner = verdict is not None and verdict.winner == one.executor
        rows.append(
            ResultRow(
                iteration=now.iteration,
                # What its archive tag points to: the commit it began from, where it made none.
                commit=(one.commit or one.base)[:7],
                metric=one.score,
                delta=None if one.score is None or before is None else difference(one.score, before),
                guard=_guard(now, one, is_winner=is_winner),
                status=_row_status(one, is_winner=is_winner),
                description=_description(now, one),
            )
        )
    return rows


def _guard(now: Round, one: Execution, *, is_winner: bool) -> Literal["pass", "fail", "-"]:
    """Return what commands and sub-scores said together; sub-scores are held to their guards before a merge."""
    found = outcome_of(now, one)
    if found is not None and found.guard_failed:
        return "fail"
    held = is_winner and now.selection is not None and bool(now.selection.policy.guards)
    return "pass" if held else one.guard


def _description(now: Round, one: Execution) -> str:
    told, why = one_line(one.plan.hypothesis), _why_not(now, one)
    return f"{told} [{why}]" if why else told


def _row_status(one: Execution, *, is_winner: bool) -> RowStatus:
    if is_winner:
        return "keep (reworked)" if one.reworks else "keep"
    if one.result in ("success", "regression"):
        return "discard"
    if one.no_op:
        return "no-op"
    if one.repeats is not None:
        return "discard"
    category = one.failure.category if one.failure else None
    if category == "benchmark_parse_error":
        return "metric-error"
    return "discard" if category in ("sealed_file_violation", "scope_error") else "crash"


def row_line(row: ResultRow) -> str:
    """Return a row of the results table, without its newline; what is not known is `-`."""
    metric = "-" if row.metric is None else repr(row.metric)
    delta = "-" if row.delta is None else signed(row.delta) if row.iteration else repr(row.delta)
    cells = (str(row.iteration), row.commit, metric, delta, row.guard, row.status, row.description)
    return "\t".join(cells)
