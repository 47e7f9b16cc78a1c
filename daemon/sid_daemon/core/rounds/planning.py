"""From a brief to approved plans: research, planning, and the architect → critic pipeline.

Part of the round machine; pure. Plans flow one by one: as soon as a plan is drafted it goes to the
architect, then to the critic, and an approved one is executed at once, while others are still drafted.
Nobody waits for another's review, but for a plan of the same family that came to the critic before: of such
the later falls, if the earlier is approved. A reviewer that failed twice gets no more plans in this round.
"""

from __future__ import annotations

from sid_daemon.core.longterm import learning
from sid_daemon.core.rounds import fanout, review
from sid_daemon.core.rounds.execution import ATTEMPTS, start_execution
from sid_daemon.core.rounds.novelty import asked
from sid_daemon.core.state import Slot, SlotStatus
from sid_daemon.core.transition import Transition
from sid_protocol import ids
from sid_protocol.commands import AdvisePlan, DraftPlan, JudgePlan, Research
from sid_protocol.events import BriefDone, PlanAdvised, PlanDrafted, PlanJudged
from sid_protocol.records import (
    ArchitectReview,
    BriefAnswer,
    CriticReview,
    Plan,
    RejectedPlan,
    ResearchBrief,
)

Reader = Research | DraftPlan | AdvisePlan | JudgePlan
"""What is asked of agents that only read."""


def start_research(transition: Transition) -> None:
    """Ask the researcher, or one for each angle."""
    transition.set_round(research="in_progress")
    count = transition.state.settings.research_fanout
    if count == 1:
        _research(transition, "", 1)
        return
    names = fanout.angles(count)
    transition.set_round(angles={name: fanout.Angle() for name in names})
    for name in names:
        _research(transition, name, 1)


def _research(transition: Transition, angle: str, attempt: int) -> None:
    now = transition.round
    transition.issue(
        Research(
            id=f"r{now.iteration}.research.{f'{angle}.' if angle else ''}{attempt}",
            iteration=now.iteration,
            head=now.head,
            attempt=attempt,
            angle=angle,
        )
    )


def on_brief(transition: Transition, command: Research, event: BriefDone) -> None:
    """Keep the brief, and let the planners begin once there is none to wait for."""
    if command.angle:
        _on_angle(transition, command.angle, fanout.Angle(brief=event.brief))
    else:
        _end_research(transition, event.brief)


def _research_failed(transition: Transition, command: Research, attempt: int, why: str) -> None:
    """Ask once more, then plan from what others found, or from history alone."""
    if attempt < ATTEMPTS:
        _research(transition, command.angle, attempt + 1)
    elif command.angle:
        _on_angle(transition, command.angle, fanout.Angle(failed=" ".join(why.split())[:200]))
    else:
        _end_research(transition, None)


def _on_angle(transition: Transition, angle: str, found: fanout.Angle) -> None:
    transition.set_round(angles={**transition.round.angles, angle: found})
    if all(one.done for one in transition.round.angles.values()):
        _end_research(transition, fanout.merged(transition.round.angles))


def _end_research(transition: Transition, answer: BriefAnswer | None) -> None:
    transition.set_round(research="failed" if answer is None else "completed", research_done_at=transition.at)
    if answer is not None:
        identity = {"iteration": transition.round.iteration, "researcher_id": "researcher"}
        transition.set_round(brief=ResearchBrief.model_validate({**answer.model_dump(), **identity}))
    start_planning(transition)


def start_planning(transition: Transition) -> None:
    """Ask all planners at once."""
    for number in range(1, transition.state.settings.number_of_agents + 1):
        _draft(transition, ids.planner_id(number), 1)


def _draft(transition: Transition, planner: str, attempt: int) -> None:
    now = transition.round
    transition.set_slot(planner, status="drafting")
    transition.issue(
        DraftPlan(
            id=f"r{now.iteration}.plan.{planner}.{attempt}",
            iteration=now.iteration,
            planner=planner,
            head=now.head,
            attempt=attempt,
        )
    )


def _plan_failed(transition: Transition, planner: str, attempt: int) -> None:
    """Ask the planner once more, then go on without it."""
    if attempt < ATTEMPTS:
        _draft(transition, planner, attempt + 1)
    else:
        transition.set_slot(planner, status="failed")


def on_plan(transition: Transition, planner: str, event: PlanDrafted) -> None:
    """Give the plan its identity and queue it for the architect."""
    iteration = transition.round.iteration
    identity = {
        "plan_id": ids.plan_id(iteration, planner),
        "planner_id": planner,
        "round": iteration,
        "critic_approved": False,
        "critic_review": None,
        "architect_review": None,
    }
    plan = Plan.model_validate({**event.plan.model_dump(), **identity})
    transition.set_slot(planner, status="drafted", plan=plan)
    review_next(transition)


def review_next(transition: Transition) -> None:
    """Give the architect each plan that was drafted, and the critic each that may come before it."""
    for slot in _waiting(transition, "drafted"):
        if slot.plan is None or slot.planner in transition.round.advising:
            continue
        if why := _skipped(transition, "architect"):
            _keep_advice(transition, slot.planner, review.absent_advice(why))
        else:
            _advise(transition, slot.planner, slot.plan, 1)
    for slot in _waiting(transition, "advised"):
        if slot.plan is None or slot.planner in transition.round.judging:
            continue
        by_rules = review.apply_rules(slot.plan, rule_context(transition))
        if by_rules.verdict == "rejected":
            _conclude(transition, slot.planner, by_rules)
        elif slot.plan.approach_family in _families_at_critic(transition):
            continue
        elif _skipped(transition, "critic"):
            _conclude(transition, slot.planner, by_rules)
        else:
            _judge(transition, slot.planner, 1)


def without(planners: tuple[str, ...], planner: str) -> tuple[str, ...]:
    """Return the others; in order, so that a state that was folded twice reads the same."""
    return tuple(one for one in planners if one != planner)


def _waiting(transition: Transition, status: SlotStatus) -> list[Slot]:
    return [slot for slot in transition.round.slots.values() if slot.status == status]


def _families_at_critic(transition: Transition) -> set[str]:
    judged = (transition.round.slots[planner].plan for planner in transition.round.judging)
    return {plan.approach_family for plan in judged if plan is not None}


def _skipped(transition: Transition, reviewer: str) -> str:
    """Say why a reviewer gets no more plans in this round; empty while it does: it has given up none."""
    now = transition.round
    why = [f.why for f in now.failures if f.agent_id == reviewer and (f.final or f.attempt >= ATTEMPTS)]
    why += [f"force-killed: {kill.reason}" for kill in now.kills if kill.agent_id == reviewer]
    return why[-1] if why else ""


def rule_context(transition: Transition) -> review.RuleContext:
    """Return what the rules look at, at this moment of the round."""
    state, now = transition.state, transition.round
    approved = [now.slots[planner].plan for planner in now.approved]
    return review.RuleContext(
        families=state.families,
        streak_family=state.streak_family,
        approved_families=tuple(plan.approach_family for plan in approved if plan),
        sealed=(*state.sealed, *state.settings.sealed_files),
        scope=state.settings.scope,
        tried=asked(state.tried, state.settings),
        head=now.head,
        refused=learning.refused_paths(state),
    )


def _advise(transition: Transition, planner: str, plan: Plan, attempt: int) -> None:
    now = transition.round
    transition.set_round(advising=(*now.advising, planner))
    transition.issue(
        AdvisePlan(
            id=f"r{now.iteration}.advise.{planner}.{attempt}",
            iteration=now.iteration,
            plan=plan,
            head=now.head,
            attempt=attempt,
        )
    )


def on_advice(transition: Transition, planner: str, event: PlanAdvised) -> None:
    """Add the architect's review to the plan."""
    _advised(transition, planner, event.review)


def _advice_failed(transition: Transition, planner: str, attempt: int, why: str) -> None:
    """Ask the architect once more, then go on without advice."""
    plan = transition.round.slots[planner].plan
    if attempt < ATTEMPTS and plan is not None and not _skipped(transition, "architect"):
        _advise(transition, planner, plan, attempt + 1)
    else:
        _advised(transition, planner, review.absent_advice(why))


def _advised(transition: Transition, planner: str, advice: ArchitectReview) -> None:
    _keep_advice(transition, planner, advice)
    transition.set_round(advising=without(transition.round.advising, planner))
    review_next(transition)


def _keep_advice(transition: Transition, planner: str, advice: ArchitectReview) -> None:
    plan = transition.round.slots[planner].plan
    if plan is not None:
        plan = plan.model_copy(update={"architect_review": advice})
    transition.set_slot(planner, status="advised", advice=advice, plan=plan)


def _judge(transition: Transition, planner: str, attempt: int) -> None:
    now = transition.round
    slot = now.slots[planner]
    if slot.plan is None:
        return
    transition.set_round(judging=(*now.judging, planner))
    transition.issue(
        JudgePlan(
            id=f"r{now.iteration}.judge.{planner}.{attempt}",
            iteration=now.iteration,
            plan=slot.plan,
            advice=slot.advice,
            head=now.head,
            attempt=attempt,
        )
    )


def on_judgement(transition: Transition, planner: str, event: PlanJudged | None) -> None:
    """Join the critic's review with the rules; `None` where the critic gave none."""
    plan = transition.round.slots[planner].plan
    transition.set_round(judging=without(transition.round.judging, planner))
    if plan is not None:
        by_rules = review.apply_rules(plan, rule_context(transition))
        _conclude(transition, planner, review.bind(by_rules, event.review if event else None))
    review_next(transition)


def _judgement_failed(transition: Transition, planner: str, attempt: int) -> None:
    """Ask the critic once more, then let the rules alone decide."""
    if attempt < ATTEMPTS and not _skipped(transition, "critic"):
        _judge(transition, planner, attempt + 1)
    else:
        on_judgement(transition, planner, None)


def on_failed(transition: Transition, command: Reader, attempt: int, why: str) -> None:
    """Repeat a turn that came to nothing, once, then go on without it.

    Args:
        transition: The one under way.
        command: What the agent was asked.
        attempt: The last one made; `ATTEMPTS` where asking again is no use.
        why: In one line.
    """
    match command:
        case Research():
            _research_failed(transition, command, attempt, why)
        case DraftPlan():
            _plan_failed(transition, command.planner, attempt)
        case AdvisePlan():
            _advice_failed(transition, command.plan.planner_id, attempt, why)
        case JudgePlan():
            _judgement_failed(transition, command.plan.planner_id, attempt)


def _conclude(transition: Transition, planner: str, by_critic: CriticReview) -> None:
    slot = transition.round.slots[planner]
    if slot.plan is None:
        return
    approved = by_critic.verdict == "approved"
    plan = slot.plan.model_copy(update={"critic_review": by_critic, "critic_approved": approved})
    transition.set_slot(planner, status="approved" if approved else "rejected", plan=plan)
    if approved:
        transition.set_round(approved=(*transition.round.approved, planner))
        start_execution(transition, plan)
        return
    rejected = RejectedPlan(
        plan_id=plan.plan_id,
        approach_family=plan.approach_family,
        hypothesis=plan.hypothesis,
        rejection_reason=by_critic.rejection_reason or "",
    )
    transition.set_round(rejected=(*transition.round.rejected, rejected))


def planning_is_over(transition: Transition) -> bool:
    """Say whether every planner's plan is approved, rejected or given up."""
    now = transition.round
    begun = now.research in ("completed", "failed")
    return begun and all(slot.status in ("approved", "rejected", "failed") for slot in now.slots.values())
