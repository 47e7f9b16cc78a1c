"""The rules on plans, as a table: what each one catches, and what it must let pass."""

from __future__ import annotations

import pytest

from sid_daemon.core.rounds.review import (
    POINTS,
    RuleContext,
    absent_advice,
    apply_rules,
    bind,
    hypothesis_count,
)
from sid_protocol.events import AgentFailed
from sid_protocol.records import CriticReview, ExpectedOutcome, Plan, PlanStep
from sid_protocol.settings import Scope
from tests.core.play import plan, played, review, scripted
from tests.core.test_run import history, second_wins, settings

ONE = [
    "Cache the table of primes; lookups fall from O(n) to O(1), since the same ones are asked for again.",
    "Replace the list by a set and drop the sort, so that membership tests are constant.",
    "Use a 3.5x larger buffer. It fits the L2 cache (1 MB), so fewer reads are needed.",
    "Hypothesis: the loop is bound by attribute lookups.",
    "Inline f() — e.g. as in version 2.0.1 — to save calls; memory also falls.",
    "Rule 1) says keep it short: memoise parse().",
    "Go from version 1. to 2. of the table: see (b) in the paper for why.",
    "First, and above all, memoise parse(): the second call costs nothing.",
]
SEVERAL = [
    ("1. Cache the table.\n2. Sort the input.", 2),
    ("- cache the table\n- sort the input\n- inline f()", 3),
    ("Hypothesis A: cache. Hypothesis B: sort.", 2),
    ("Idea 1: cache the table. Idea 2: sort the input.", 2),
    ("Cache the table and also sort the input.", 2),
    ("Cache the table. Secondly, sort the input.", 2),
    ("  (a) cache the table\n  (b) sort the input", 2),
    ("1. Cache the table. 2. Sort the input.", 2),
    ("(a) cache the table; (b) sort the input", 2),
    ("H1: cache the table; H2: sort the input", 2),
    ("First, cache the table. Second, sort the input.", 2),
    ("   \n\t", 0),
]


@pytest.mark.parametrize("text", ONE)
def test_one_hypothesis_is_one(text: str) -> None:
    assert hypothesis_count(text) == 1


@pytest.mark.parametrize(("text", "count"), SEVERAL)
def test_several_hypotheses_are_several(text: str, count: int) -> None:
    assert hypothesis_count(text) == count


def context(
    *,
    families: tuple[str, ...] = (),
    streak: str | None = None,
    approved: tuple[str, ...] = (),
    sealed: tuple[str, ...] = ("bench.py", "tests/"),
    scope: Scope | None = None,
) -> RuleContext:
    return RuleContext(families, streak, approved, sealed, scope or Scope())


def drafted(
    family: str = "data", *, files: tuple[str, ...] = ("app.py",), why: str = "", text: str = "Cache it."
) -> Plan:
    answer = plan(family, text)
    steps = [PlanStep(step=1, file=files[-1], change="cache it")]
    fields = {
        **answer.model_dump(),
        "target_files": list(files[:1]),
        "steps": steps,
        "expected_outcome": ExpectedOutcome(rationale=why),
    }
    return Plan.model_validate({**fields, "plan_id": "p", "planner_id": "planner_a", "round": 1})


@pytest.mark.parametrize(
    ("one", "where", "point", "said"),
    [
        (drafted(text="1. a\n2. b"), context(), "h001_hypothesis_count", "H001: 2 hypotheses"),
        (drafted(text=" "), context(), "h001_hypothesis_count", "H001: 0 hypotheses"),
        (drafted("data"), context(streak="data"), "h002_family_streak", "H002: data won"),
        (drafted("data"), context(approved=("data",)), "h003_intra_round_diversity", "H003"),
        (drafted("magic"), context(), "schema_valid", "unknown approach family 'magic'"),
        (drafted("other"), context(), "schema_valid", "needs a rationale"),
        (drafted(files=("bench.py",)), context(), "schema_valid", "'bench.py' is sealed"),
        (drafted(files=("./bench.py",)), context(), "schema_valid", "is sealed"),
        (drafted(files=("tests/test_app.py",)), context(), "schema_valid", "is sealed (tests/)"),
        (drafted(files=("app.py", "bench.py")), context(), "schema_valid", "'bench.py' is sealed"),
        (drafted(files=("/etc/passwd",)), context(), "schema_valid", "path '/etc/passwd'"),
        (drafted(files=("../other/app.py",)), context(), "schema_valid", "path '../other/app.py'"),
        (drafted(files=(".git/config",)), context(), "schema_valid", "path '.git/config'"),
        (
            drafted(files=("lib/a.py",)),
            context(scope=Scope(include=["src/**"])),
            "schema_valid",
            "out of scope",
        ),
        (
            drafted(files=("src/a.py",)),
            context(scope=Scope(exclude=["src/**"])),
            "schema_valid",
            "out of scope",
        ),
    ],
)
def test_a_rule_rejects_and_says_why(one: Plan, where: RuleContext, point: str, said: str) -> None:
    found = apply_rules(one, where)

    assert found.verdict == "rejected"
    assert [name for name in POINTS if getattr(found, name) == "fail"] == [point]
    assert said in (found.rejection_reason or "")


@pytest.mark.parametrize(
    ("one", "where"),
    [
        (drafted("data"), context(streak="testing", approved=("testing", "optimization"))),
        (drafted("wizardry"), context(families=("wizardry",))),
        (drafted("other", why="it is a build flag, which no family names"), context()),
        (drafted(files=("src/a.py",)), context(scope=Scope(include=["src/**"], exclude=["src/b.py"]))),
        (drafted(files=("lib/a.py",)), context(scope=Scope(include=["src/**"], on_violation="warn"))),
    ],
)
def test_a_plan_within_the_rules_is_approved(one: Plan, where: RuleContext) -> None:
    found = apply_rules(one, where)

    assert (found.verdict, found.rejection_reason) == ("approved", None)


def test_every_fault_of_a_plan_is_told() -> None:
    found = apply_rules(drafted("data", text="1. a\n2. b"), context(streak="data", approved=("data",)))

    assert (found.rejection_reason or "").count(";") == 2


APPROVED = apply_rules(drafted(), context())
REJECTED = apply_rules(drafted("data"), context(streak="data"))


def test_a_critic_cannot_approve_what_the_rules_reject() -> None:
    found = bind(REJECTED, review("approved"))

    assert found.verdict == "rejected"
    assert found.h002_family_streak == "fail"
    assert "H002" in (found.rejection_reason or "")


@pytest.mark.parametrize(
    ("by_critic", "said"),
    [
        (review("rejected", "was tried in round 3"), "was tried in round 3"),
        (review("rejected"), "the critic failed history_aware"),
        (
            review("rejected").model_copy(update={"history_aware": "pass"}),
            "rejected by the critic without a reason",
        ),
        (review("approved").model_copy(update={"schema_valid": "fail"}), "the critic failed schema_valid"),
    ],
)
def test_a_critic_may_reject_more(by_critic: CriticReview, said: str) -> None:
    found = bind(APPROVED, by_critic)

    assert (found.verdict, found.rejection_reason) == ("rejected", said)


def test_an_approval_keeps_no_reason() -> None:
    praised = review("approved").model_copy(update={"rejection_reason": "none, well done"})

    assert bind(APPROVED, praised).rejection_reason is None
    assert bind(APPROVED, None) == APPROVED


def test_absent_advice_says_that_there_is_none() -> None:
    assert absent_advice("timed out").feedback == "no review: timed out"


@pytest.mark.parametrize("reviewer", ["advise", "judge"])
def test_a_reviewer_that_gave_up_is_skipped_for_the_round(reviewer: str) -> None:
    gave_up = AgentFailed(why="exit status 1", final=True)
    answer = scripted(
        {f"r1.{reviewer}.planner_a": [gave_up], "r1.plan.planner_c": [AgentFailed(why="no JSON")]}
    )
    play = played(settings(number_of_agents=3, max_iterations=2), answer=answer, score=second_wins)

    asked = [c.id for c in play.dispatched if f".{reviewer}." in c.id]
    # The third plan comes later, when that is known; the next round is a new try.
    assert [one for one in asked if one.startswith("r1.")] == [
        f"r1.{reviewer}.planner_a.1",
        f"r1.{reviewer}.planner_b.1",
    ]
    assert len([one for one in asked if one.startswith("r2.")]) == 3
    assert len(history(play)["losers"]) == 2  # all three plans were carried out
