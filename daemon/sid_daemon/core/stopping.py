"""When a run ends, and what its counters do after a round.

Pure. Called by the round machine after a round is recorded and by `start`. The order of the stop
conditions is the order in which they are promised: target, plateau, iterations, circuit breaker, blocked,
budget (a user's stop comes before all of them, in the conductor).
"""

from __future__ import annotations

from decimal import Decimal

from sid_daemon.core.state import RunState
from sid_protocol.records import RunStatus
from sid_protocol.settings import Budget, Settings

BROKEN_ROUNDS = 3
"""So many rounds in a row in which the benchmark failed on the incumbent itself end the run."""


def gain(before: float, after: float, settings: Settings) -> Decimal:
    """Return by how much `after` beats `before`, in score units; negative when it is worse.

    Exact: a gain from 0.34 to 0.35 is the 0.01 that a user's threshold names.
    """
    difference = Decimal(repr(after)) - Decimal(repr(before))
    return difference if settings.benchmark_direction == "higher_is_better" else -difference


def reaches(threshold: float | str, before: float, improvement: Decimal) -> bool:
    """Say whether an improvement is at least a threshold.

    Args:
        threshold: Score units, or a percentage of `before` such as `"1%"`.
        before: The incumbent's score.
        improvement: The gain in score units.
    """
    if isinstance(threshold, str):
        share = Decimal(threshold.removesuffix("%").strip()) / 100
        # Relative to zero every gain is infinite, so any gain at all reaches the threshold.
        return improvement >= share * abs(Decimal(repr(before))) and (before != 0 or improvement > 0)
    return improvement >= Decimal(repr(threshold))


def target_reached(state: RunState) -> bool:
    """Say whether the incumbent meets the target: with its interval's worse end, where it has one."""
    target, shown = state.settings.target_value, shown_score(state)
    if target is None or shown is None:
        return False
    return shown >= target if state.settings.benchmark_direction == "higher_is_better" else shown <= target


def shown_score(state: RunState) -> float | None:
    """Return what the incumbent has shown to reach: its score, or its interval's worse end; None if that is open."""
    if not state.is_noisy:
        return state.best_score
    low, high = state.best_interval or (None, None)
    return low if state.settings.benchmark_direction == "higher_is_better" else high


def budget_spent(state: RunState) -> str | None:
    """Return which limit of the budget is used up, in a few words; None while none is."""
    budget = state.settings.budget
    usd = sum(spent.usd or 0.0 for spent in state.spent.values())
    tokens = sum((s.input_tokens or 0) + (s.output_tokens or 0) for s in state.spent.values())
    calls = sum(spent.calls for spent in state.spent.values())
    used: tuple[tuple[str, float, float | None], ...] = (
        ("usd", usd, budget.usd),
        ("tokens", tokens, budget.tokens),
        ("wall_s", state.wall_s, budget.wall_s),
        ("calls", calls, budget.calls),
    )
    for name, amount, limit in used:
        if limit is not None and amount >= limit:
            return f"budget.{name}: {amount:g} of {limit:g} used"
    return state.unpaid or None


def raised(old: Budget, new: Budget) -> bool:
    """Say whether any limit that bounds a whole run is higher than it was."""
    names = ("usd", "tokens", "calls")
    limits = [(getattr(old, name), getattr(new, name)) for name in names]
    return any(was is not None and (now is None or now > was) for was, now in limits)


def waived_by_rounds(state: RunState) -> tuple[RunStatus, ...]:
    """Return the limits that hold already when a user asks for so many more rounds: they do not end those."""
    held: list[RunStatus] = []
    if target_reached(state):
        held.append("target_reached")
    if state.completed >= state.settings.max_iterations:
        held.append("max_iterations")
    return tuple(held)


def stop_status(state: RunState) -> tuple[RunStatus, str] | None:
    """Return the status and the reason with which a run ends now; None when it goes on."""
    settings = state.settings
    if target_reached(state) and "target_reached" not in state.waived:
        return "target_reached", f"best score {state.best_score!r} meets {settings.target_value!r}"
    if state.plateau_count >= settings.plateau_window:
        return "plateau", f"{state.plateau_count} wins in a row below plateau_threshold"
    if state.completed >= settings.max_iterations and "max_iterations" not in state.waived:
        return "max_iterations", f"{state.completed} of {settings.max_iterations} rounds done"
    if state.rounds_until is not None and state.completed >= state.rounds_until:
        return "max_iterations", "the rounds asked for are done"
    if state.history.broken_rounds >= BROKEN_ROUNDS:
        return (
            "circuit_breaker",
            "the benchmark fails on the improvement branch itself, three rounds in a row; run it there by hand",
        )
    if state.breaker_count >= settings.circuit_breaker_threshold:
        return "circuit_breaker", f"{state.breaker_count} rounds in a row without a winner"
    if state.blocked_count >= settings.blocked_limit:
        return "blocked", f"{state.blocked_count} rounds in a row were blocked by force-kills"
    if spent := budget_spent(state):
        return "budget", spent
    return None


def counters_after(
    state: RunState, *, gained: Decimal | None, before: float | None, blocked: bool
) -> tuple[int, int, int]:
    """Return plateau, circuit-breaker and blocked counts after a round.

    Args:
        state: The run before the round is counted.
        gained: The winner's gain in score units, or None for a round without a winner.
        before: The incumbent's score of the same session.
        blocked: Whether force-kills blocked the round.
    """
    blocked_count = state.blocked_count + 1 if blocked else 0
    if gained is None:
        return state.plateau_count, state.breaker_count + 1, blocked_count
    large = reaches(state.settings.plateau_threshold, before or 0.0, gained)
    return (0 if large else state.plateau_count + 1), 0, blocked_count
