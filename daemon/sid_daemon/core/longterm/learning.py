"""What a round teaches: its faults as keys, when lessons are settled, and what stands in whose prompt.

Part of `step`; pure. `lessons` knows counts and evidence, this knows rounds: it reads the faults off a round that is
recorded, settles the book then and when a round is prepared, and says in words what an agent is told. Nobody's
fault (a spent budget, a blocked round's leftovers) teaches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from sid_daemon.core.longterm import lessons
from sid_daemon.core.longterm.lessons import SNIPPET_LIMIT, Book, Key, Sighting, parse_key
from sid_daemon.core.rounds.execution import AGENT_TWICE, LESSONS
from sid_daemon.core.state import Execution, Round, RunState
from sid_daemon.core.transition import Transition
from sid_daemon.core.wording import one_line
from sid_protocol.events import RoundPrepared

PLAN_RULES = ("H001", "H002", "H003")
FAMILY_SHOWN = 60
REPEATED = "tried before"
"""How the reason of what was tried before begins, of a plan and of a change."""
_REASONS = {
    "context_limit": "Read only what the task needs, and end before the window is full.",
    "tool_loop": "Do not repeat a call that has answered already: change something, or end the turn.",
    "stuck_on_permission": "Nobody grants permissions or answers prompts: use only what works without asking.",
    "network_timeout": "Do not wait for the network: work with what is on this machine.",
    "ambiguous_task": "Nobody answers questions: take the nearest reading that can be tested, and act on it.",
    "unknown": "Work in small steps, show progress, and end well before the deadline.",
}
_REJECTIONS = {
    "H001": "State exactly one hypothesis in a plan: one change, never two joined.",
    "H002": "Plan outside of the family that won the last two rounds.",
    "H003": "Keep to the family that you were asked to prefer: no two plans of a round may share one.",
    "schema": "Name only families of the list, and files that are inside the scope and not sealed.",
    "tried": "Do not plan again what the record says was tried: build on it, or change something else.",
    "critic": "Meet what the critic rejected plans for: see the evidence.",
}
_RULES = {
    "guard": "Keep what the guard commands check intact, and run over it before ending.",
    "no_change": "Leave a change in the worktree: a turn that edits nothing is lost.",
}


def sightings(now: Round) -> Iterator[Sighting]:
    """Yield the faults of a round that is over."""
    for kill in now.kills:
        snippet = kill.snippet or kill.last_activity or ""
        yield Sighting(
            str(Key("timeout", kill.reason, kill.role)), kill.role, one_line(snippet, SNIPPET_LIMIT)
        )
    for failed in now.failures:
        if failed.budget is None and not failed.final:
            yield Sighting(
                str(Key("agent_failed", "", failed.role)), failed.role, one_line(failed.why, SNIPPET_LIMIT)
            )
    for rejected in now.rejected:
        key = Key("plan_rejected", "", rejection_rule(rejected.rejection_reason))
        yield Sighting(str(key), "planner", one_line(rejected.rejection_reason, SNIPPET_LIMIT))
    for one in now.executions.values():
        if (found := _of_candidate(one)) is not None:
            yield found


def rejection_rule(reason: str) -> str:
    """Return the rule that a plan was rejected by: H001 to H003, `schema`, `tried`, or `critic` for what only it said."""
    named = next((rule for rule in PLAN_RULES if reason.startswith(rule)), None)
    if reason.startswith(REPEATED):
        return "tried"
    by_code = ("path ", "unknown approach family", "family 'other'")
    return named or ("schema" if reason.startswith(by_code) else "critic")


def _of_candidate(one: Execution) -> Sighting | None:
    failure = one.failure
    if failure is None or one.kill is not None or failure.category == "infrastructure":
        return None
    if failure.what == AGENT_TWICE:
        return None  # told of the agent already
    key, subject = Key(failure.category), "executor"
    if failure.what.startswith(REPEATED):
        key, subject = Key("plan_rejected", "", "tried"), "planner"
    elif one.no_op:
        key = Key(failure.category, "", "no_change")
    elif failure.category == "regression" and one.guard == "fail":
        key = Key(failure.category, "", "guard")
    elif failure.category == "regression":
        family = one.plan.approach_family[:FAMILY_SHOWN]
        key, subject = Key(failure.category, "", family), f"family:{family}"
    return Sighting(str(key), subject, one_line(f"{failure.what}: {failure.why}", SNIPPET_LIMIT), one.refused)


def occasions(now: Round) -> frozenset[str]:
    """Return the subjects at work in a round: where no executor ran, none could fail."""
    found = {"researcher"}
    if now.slots:
        found.add("planner")
    if any(slot.plan for slot in now.slots.values()):
        found |= {"architect", "critic"}
    if now.executions:
        found.add("executor")
    families = (one.plan.approach_family[:FAMILY_SHOWN] for one in now.executions.values())
    return frozenset(found | {f"family:{family}" for family in families})


def on_prepared(transition: Transition, before: RunState, event: RoundPrepared) -> None:
    """Take in what other runs have seen, and say by coin which lessons the round does without.

    Args:
        transition: The one under way, with the round's settings taken already.
        before: The run before them.
        event: What was read; without `others` it is of a version that knew no lessons, and nothing is in force.
    """
    state = transition.state
    transition.set(other_runs=event.others)
    if event.others is None:
        return
    book = state.lessons
    changed = (before.sealed, before.settings.scope) != (event.sealed, event.settings.scope)
    if changed and before.completed:
        book = lessons.without_paths(book)
    book = _settled(transition, book, state.completed)
    held = lessons.held_out(book, state.settings.lesson_probe, state.seed, transition.round.iteration)
    transition.set(lessons=book)
    told = tuple(key for key in book.in_force if key not in held)
    transition.set_round(lessons_told=told, lessons_held=held)


def _settled(transition: Transition, book: Book, iteration: int) -> Book:
    state = transition.state
    if state.other_runs is None:
        return book
    return lessons.settle(
        book,
        iteration,
        state.other_runs,
        window=state.settings.lessons_window,
        threshold=state.settings.lesson_threshold,
    )


def on_recorded(transition: Transition) -> None:
    """Learn from a round that is over."""
    now = transition.round
    book = lessons.observe(
        transition.state.lessons, now.iteration, sightings(now), occasions(now), now.lessons_held
    )
    transition.set(lessons=_settled(transition, book, now.iteration))


def on_forgotten(transition: Transition, key: str) -> None:
    """End a lesson at the user's wish, at once."""
    state = transition.state
    transition.set(lessons=lessons.forget(state.lessons, key, state.completed))
    if state.round is not None:
        told, held = state.round.lessons_told, state.round.lessons_held
        transition.set_round(
            lessons_told=tuple(one for one in told if one != key),
            lessons_held=tuple(one for one in held if one != key),
        )


def refused_paths(state: RunState) -> dict[str, str]:
    """Return the paths that a lesson of this round bars from plans: path → the lesson's key."""
    told = state.round.lessons_told if state.round else ()
    barred = (key for key in told if parse_key(key).category == "sealed_file_violation")
    return {
        path: key
        for key in barred
        if (trace := state.lessons.traces.get(key)) is not None
        for path in trace.paths
    }


def told_to(key: str, role: str) -> bool:
    """Say whether a lesson concerns a role: who made the fault, and who plans for whom."""
    subject = lessons.subject_of(key)
    if subject.startswith("family:"):
        return role in ("researcher", "planner")
    if subject != "executor":
        return role == subject
    return role == "executor" or (role == "planner" and not parse_key(key).reason)


def rule_of(key: str) -> str:
    """Return a lesson as a sentence; written here, and not by an agent."""
    known = parse_key(key)
    if known.category == "timeout" and known.reason:
        return _REASONS.get(known.reason, _REASONS["unknown"])
    if known.category == "plan_rejected":
        return _REJECTIONS.get(known.rule, _REJECTIONS["critic"])
    if known.category == "agent_failed":
        return "Answer in the form that is asked for, and end by yourself: turns failed, see the evidence."
    if known.category == "regression" and known.rule not in ("", "guard"):
        return (
            f"Changes of the family {known.rule} made the result worse again and again: say what differs this "
            "time, or choose another."
        )
    if known.rule in _RULES:
        return _RULES[known.rule]
    return next((text for name, text in LESSONS.items() if name == known.category), "See the evidence.")
