"""The audit in a run: when it is due, its runs one after the other between two rounds, and what it says of the whole.

A user's stop does not wait for it; what was measured stays, and the next start goes on with it, which an always-valid
interval allows.

Part of `step`; pure. Called by `round`; what is compared, and what is found, is `audit`'s.
"""

from __future__ import annotations

from dataclasses import replace

from sid_daemon.core.conditions import result_of, run_of
from sid_daemon.core.longterm.audit import BASELINE, Audit, Audited, next_ask
from sid_daemon.core.measuring.evidence import Scale
from sid_daemon.core.state import RunState
from sid_daemon.core.stopping import gain
from sid_daemon.core.transition import Transition
from sid_protocol.commands import Measure
from sid_protocol.events import RunMeasured


def _is_due(state: RunState, *, ending: bool) -> bool:
    """Say whether head and baseline are to be compared now.

    Args:
        state: Between two rounds.
        ending: The run is about to end.
    """
    merges = state.history.merges - state.audited_merges
    if merges < 1 or state.head == state.first_commit:
        return False
    return ending or merges >= state.settings.measurement.audit_every


def go_on(transition: Transition, *, ending: bool) -> bool:
    """Begin or continue an audit; says whether one is under way."""
    state = transition.state
    if state.audit is None:
        if not _is_due(state, ending=ending):
            return False
        rule = state.settings.measurement
        transition.set(
            audit=Audit(
                baseline_sha=state.first_commit,
                head_sha=state.head,
                direction=state.settings.benchmark_direction,
                noisy=state.is_noisy,
                max_pairs=rule.max_pairs,
                max_minutes=rule.max_minutes,
                pass_fail=state.settings.benchmark_format == "pass_fail",
                continuous=state.history.all_positive and not state.history.all_whole,
                reference=state.baseline_score,
                seed=state.seed,
                merges=state.history.merges,
                summed=state.summed_gain,
                summed_score=state.summed_score,
            )
        )
    return _ask(transition)


def _ask(transition: Transition) -> bool:
    """Ask for the next run, or take the audit to the record; says whether it goes on."""
    state = transition.state
    if state.audit is None:
        return False
    ask = next_ask(state.audit)
    if isinstance(ask, Audited):
        transition.set(audit=None, audited=ask, audited_merges=ask.merges)
        return False
    arm, pair = ask
    transition.issue(
        run_of(
            state,
            id=f"audit{state.audit.merges}.{len(state.audit.results)}.{arm}",
            iteration=max(1, state.iteration),
            arm=arm,
            tree=state.audit.baseline_sha if arm == BASELINE else state.audit.head_sha,
            stage="audit",
            block=pair,
        )
    )
    return True


def on_measured(transition: Transition, command: Measure, event: RunMeasured) -> bool:
    """Take one run of an audit; says whether the audit goes on."""
    audit = transition.state.audit
    if audit is None:
        return False
    result = result_of(command.arm, event)
    transition.set(audit=replace(audit, results=(*audit.results, result)))
    return _ask(transition)


def total_gain(state: RunState) -> float | None:
    """Return what the merges of a noisy run gained together, in score units of its baseline; positive is better.

    What the newest audit measured. Of merges since then, or before the first one, two figures are known, and both
    mislead: the sum of the wins holds their luck, the difference of scores of two times what the machine did between.
    Only what both carry is claimed.

    Returns:
        The gain to six digits, since it is an estimate; None where scores have no ratio and no audit was made.
    """
    history, found, base = state.history, state.audited, state.baseline_score
    ratio = Scale(state.settings.benchmark_direction, logarithmic=True)
    if found is None or found.interval is None or found.gain is None or found.score is None:
        has_ratio = history.all_positive and not history.all_whole and history.merges
        if not has_ratio or state.settings.benchmark_format == "pass_fail" or base <= 0:
            return None
        return _to_digits(ratio.gain(base, _since(state, ratio, base, state.summed_gain)))
    if found.logarithmic and base > 0:
        since = _since(state, ratio, found.score, state.summed_gain - found.summed)
        return _to_digits(ratio.gain(base, found.gain + since))
    units = replace(ratio, logarithmic=False, reference=found.reference)
    later = gain(found.score, state.best_score, state.settings) if history.merges > found.merges else 0
    return _to_digits(units.gain(base, found.gain) + max(0.0, float(later)))


def _since(state: RunState, ratio: Scale, before: float, wins: float) -> float:
    """Return the logarithmic gain since a score was measured that the wins since and the best score both carry."""
    if wins <= 0 or before <= 0 or state.best_score <= 0:
        return 0.0
    return min(wins, max(0.0, ratio.gap(before, state.best_score)))


def _to_digits(value: float) -> float:
    return float(f"{value:.6g}") + 0.0
