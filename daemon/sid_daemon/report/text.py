"""The summary at a run's end, and what a user should know of a run besides its figures.

Made for `start --wait`, `demo`, the last log record and `run.status`. The first five lines are promised to
scripts, so they never change; everything after them may. Pure; tells what the state holds and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pydantic import JsonValue

from sid_daemon.core.longterm.audit import Audited, headline
from sid_daemon.core.longterm.auditing import total_gain
from sid_daemon.core.longterm.ladder import rung_line, rung_of
from sid_daemon.core.measuring.evidence import MAD_TO_SD, findable_gains
from sid_daemon.core.measuring.words import NOISY_MIN_EFFECT
from sid_daemon.core.state import ACTIVE, ENDED, RunState, Spent
from sid_daemon.core.wording import noise_line
from sid_daemon.figures import improvement, percentage
from sid_daemon.layout import CHART
from sid_protocol import ids
from sid_protocol.locations import shell_word

_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")


def summary_text(state: RunState, *, notes: Sequence[str] = ()) -> str:
    """Return the summary of a run, without a newline at its end.

    Args:
        state: The run as it ended.
        notes: What was done about push and pull request, where they are on.
    """
    gain = gained(state)
    share = percentage(gain, state.baseline_score)
    lines = [
        "=== Self-Improvement Loop Complete ===",
        f"Status: {state.status}",
        f"Iterations: {state.completed}",
        f"Best Score: {state.best_score!r} (baseline: {state.baseline_score!r})",
        f"Improvement: {gain!r} ({share}%)",
    ]
    if state.reason:
        lines.append(f"Reason: {state.reason}")
    if state.hint:
        lines.append(f"Hint: {state.hint}")
    if state.best_interval is not None:
        # An estimate: more digits would say more than it knows.
        low, high = (("?" if end is None else f"{end:.6g}") for end in state.best_interval)
        lines.append(f"95 % interval of the best score: [{low}, {high}]")
    if state.audited is not None:
        lines.append(f"Audit: {headline(state.audited)}")
    name = (ids.side_ref if state.on_side_ref else ids.improve_branch)(state.goal_slug)
    lines.append(f"Branch: {name} at {state.head[:12]}")
    known = (state.hint, headline(state.audited) if state.audited else None)
    lines += [note for note in status_notes(state) if note not in known]
    lines += cost_lines(state)
    if state.completed:
        lines.append(f"Chart: {state.root}/{CHART}")
    return "\n".join([*lines, *push_lines(state), *notes])


def gained(state: RunState) -> float:
    """Return by how much the branch is better than the baseline, in score units; negative when it is worse.

    Zero where no round ever had a winner: then both scores are of one tree, and what differs is noise. Where scores
    are noisy, what was measured side by side: best score and baseline were measured at different times.
    """
    if state.dry_rounds == state.completed:
        return 0.0
    measured = total_gain(state) if state.is_noisy else None
    if measured is not None:
        return measured
    return improvement(state.best_score, state.baseline_score, state.settings.benchmark_direction)


def cost_lines(state: RunState) -> list[str]:
    """Return what models cost, the run's sum and a line a role; nothing where no model was called."""
    used = {
        role: one for role, one in state.spent.items() if one.input_tokens or one.output_tokens or one.usd
    }
    if not used:
        return []

    def told(name: str, all_of: Sequence[Spent]) -> str:
        known = [one.usd for one in all_of if one.usd is not None]
        usd = f"{sum(known):.4f} USD" if known else "price unknown, tokens only"
        if known and len(known) < len(all_of):
            usd += " and what has no known price"
        tokens = (sum(getattr(one, key) or 0 for one in all_of) for key in _TOKENS)
        came, cached, went = (f"{number:,}" for number in tokens)
        calls, wall_s = sum(one.calls for one in all_of), sum(one.wall_s for one in all_of)
        return f"{name}: {usd}, {came} tokens in ({cached} cached), {went} out, {calls} calls, {wall_s:.0f} s of agents"

    return [told("Cost", list(used.values())), *(told(f"  {role}", [one]) for role, one in used.items())]


def push_lines(state: RunState) -> list[str]:
    """Return what a user can run by hand, for push and pull request that are off."""
    settings, branch = state.settings, ids.improve_branch(state.goal_slug)
    lines = []
    if not settings.auto_push:
        push = f"git -C {shell_word(state.repo)} push origin {branch}"
        lines.append(f"Push skipped (auto_push: false). Run manually: {push}")
    if not settings.auto_pr:
        create = f"gh pr create --head {branch} --base {shell_word(settings.target_branch)}"
        lines.append(f"PR creation skipped (auto_pr: false). Run manually: {create}")
    return lines


def summary_fields(state: RunState) -> dict[str, JsonValue]:
    """Return the summary as data: the names of the promised lines, and what the others tell."""
    gain = gained(state)
    share = percentage(gain, state.baseline_score)
    return {
        "run_id": state.run_id,
        "status": state.status,
        "iterations": state.completed,
        "best_score": state.best_score,
        "baseline": state.baseline_score,
        "delta": gain,
        "delta_pct": None if share == "n/a" else float(share),
        "interval": list(state.best_interval) if state.best_interval else None,
        "audit": audit_fields(state.audited) if state.audited else None,
        "reason": state.reason,
        "hint": state.hint or None,
        "repo": state.repo,
        "root": state.root,
        "branch": ids.improve_branch(state.goal_slug),
        "head": state.head,
        "target_branch": state.settings.target_branch,
        "chart": f"{state.root}/{CHART}" if state.completed else None,
    }


def audit_fields(found: Audited) -> dict[str, JsonValue]:
    """Return an audit as data, for the log, the events and the summary."""
    return {
        "baseline_sha": found.baseline_sha,
        "head_sha": found.head_sha,
        "gain": found.gain,
        "ci": list(found.interval) if found.interval else None,
        "n": found.n,
        "p": found.p,
        "merges": found.merges,
        "sum_of_wins": found.summed,
        "why": found.why,
    }


def status_notes(state: RunState) -> list[str]:
    """Return what the user should know of a run besides its figures, a line each."""
    notes = []
    if state.on_side_ref:
        branch = ids.improve_branch(state.goal_slug)
        notes.append(
            f"{branch} is checked out in a worktree of yours: wins are kept on {ids.side_ref(state.goal_slug)}, "
            "and the branch follows when it is free"
        )
    if rung := rung_of(state.dry_rounds):
        notes.append(rung_line(rung))
    if state.audited is not None:
        notes.append(headline(state.audited))
    if state.audit is not None:
        notes.append(f"audit under way: {len(state.audit.results)} runs of baseline and head so far")
    if state.is_noisy and (spread := state.history.aa_gaps):
        noise = MAD_TO_SD * median(spread)
        least = state.settings.measurement.min_effect
        notes.append(noise_line(noise, *findable_gains(noise, NOISY_MIN_EFFECT if least is None else least)))
    looks, most = state.history.holdout_looks, state.settings.measurement.holdout_looks
    if state.settings.holdout_command is not None and looks >= most:
        notes.append(
            f"holdout_looks is used up ({looks} of {most}): merges are no longer checked by the hold-out"
        )
    if state.status == "paused":
        notes.append("paused: 'sictl resume' goes on")
    if state.stopping and state.status in ACTIVE:
        notes.append("stopping: it takes at most 10 s")
    if state.history.broken_rounds:
        notes.append("the benchmark failed on the improvement branch itself: no candidate was judged")
    if state.hint and state.status in ENDED:
        notes.append(state.hint)
    return notes
