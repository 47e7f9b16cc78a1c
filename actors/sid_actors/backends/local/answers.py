"""What the `local` back end says: pure, from a survey, a plan and the record to the answer of each role.

The adapter asks it. The documents are the same as a model's, so the same code reads them; a plan carries its recipe
as one more field, which the records keep. Nothing is claimed that was not looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sid_actors.backends.local.globs import matches
from sid_actors.backends.local.recipe import Attempt, Recipe, RecipeInvalid, spent
from sid_actors.track import Attempt as TrackAttempt
from sid_protocol.errors import BackendError
from sid_protocol.records import Plan
from sid_protocol.settings import Settings

RECIPE = "recipe"
"""The field of a plan that holds its recipe."""

_MOST_IDEAS = 10  # of a brief, contract 3
# What is left to say where the catalogue has nothing: true, of use to a person, and marked as unlikely.
_BEYOND = (
    ("architecture", "Restructure the function that takes the most time"),
    ("optimization", "Replace the algorithm of the function that takes the most time"),
    ("data", "Choose another data structure for what is looked up most often"),
)


class OutOfIdeas(BackendError):
    """There is nothing to answer, and asking again would not change that."""

    retryable = False


def past_attempts(attempts: Iterable[TrackAttempt], settings: Settings) -> list[Attempt]:
    """Return what came of every recipe of the record, oldest first; plans without a recipe are passed over.

    Args:
        attempts: The candidates of recorded rounds.
        settings: For the direction of the metric.
    """
    sign = 1 if settings.benchmark_direction == "higher_is_better" else -1
    found = []
    for attempt in attempts:
        recipe = _recipe_in(attempt.extra)
        if recipe is None:
            continue
        before = attempt.before
        gained = (
            not attempt.won
            and attempt.failure is None
            and attempt.score is not None
            and before is not None
            and sign * (attempt.score - before) > 0
        )
        found.append(Attempt(recipe, attempt.score, won=attempt.won, gained=gained))
    return found


def recipe_of(plan: Plan) -> Recipe | None:
    """Return the recipe of a plan, None where it has none."""
    return _recipe_in(plan.model_extra or {})


def _recipe_in(extra: Mapping[str, Any]) -> Recipe | None:
    try:
        return Recipe.from_json(extra.get(RECIPE))
    except RecipeInvalid:
        return None


def brief(survey: Mapping[str, Any], *, profiled: bool, ideas: int, rules: int) -> dict[str, Any]:
    """Return the researcher's answer.

    Args:
        survey: What the survey child answered.
        profiled: Whether there was a profile of the benchmark.
        ideas: How many ideas of the user's there are, which nobody here can read.
        rules: How many rules of the user's there are.
    """
    found = [_brief_idea(idea) for idea in survey["ideas"]]
    chosen = found[:_MOST_IDEAS]
    families = {idea["approach_family"] for idea in chosen}
    for family, title in _BEYOND:
        if len(chosen) >= 3 and len(families) >= 2:
            break
        del chosen[_MOST_IDEAS - 1 :]
        families.add(family)
        chosen.append(
            {
                "title": title,
                "source": "no entry of the catalogue",
                "evidence": "The catalogue has nothing of this kind that applies here; it needs a person or a model.",
                "approach_family": family,
                "confidence": "low",
                "estimated_impact": "unknown before it is measured",
            }
        )
    told = [
        f"Files in scope: {survey['read']} read, {survey['skipped']} passed over. Changes that apply: {len(found)}.",
        "The benchmark was profiled."
        if profiled
        else "There is no profile: the benchmark is no plain Python command.",
    ]
    if ideas or rules:
        told.append(f"Not read, for want of a model: {ideas} ideas and {rules} rules of the user's.")
    return {"repo_analysis_summary": " ".join(told), "ideas": chosen}


def _brief_idea(idea: Mapping[str, Any]) -> dict[str, Any]:
    numeric = idea["recipe"]["transformation"] == "numeric"
    return {
        "title": idea["title"],
        "source": "search over numbers" if numeric else "source transformation",
        "evidence": f"{idea['target_file']}: {idea['evidence']}",
        "approach_family": idea["family"],
        "confidence": idea["confidence"],
        "estimated_impact": idea["estimated_impact"],
    }


def choose(ideas: Sequence[Mapping[str, Any]], number: int, barred: str | None) -> Mapping[str, Any]:
    """Return the idea of the `number`-th planner: the best one of the `number`-th family.

    Raises:
        OutOfIdeas: there are not so many families left.
    """
    first: dict[str, Mapping[str, Any]] = {}
    for idea in ideas:
        if idea["family"] != barred:
            first.setdefault(idea["family"], idea)
    if number <= len(first):
        return list(first.values())[number - 1]
    if barred is not None and any(idea["family"] == barred for idea in ideas) and not first:
        raise OutOfIdeas(
            f"all ideas left are of the family {barred}, which won the last two rounds and rests for one (H002)",
            hint="the next round goes on with them",
        )
    if not first:
        raise OutOfIdeas(
            "no idea left: all that the catalogue knows for this code was tried",
            hint="widen the scope, or use a back end with a model",
        )
    have = f"{len(first)} families" if len(first) != 1 else "one family"
    raise OutOfIdeas(
        f"no idea left for this planner: what was not tried is of {have}, and each planner needs its own (H003)",
        hint="lower number_of_agents, widen the scope, or use a back end with a model",
    )


def plan(idea: Mapping[str, Any], settings: Settings, attempts: Iterable[TrackAttempt]) -> dict[str, Any]:
    """Return the planner's answer for one idea."""
    recipe = Recipe.from_json(idea["recipe"])
    alike = [past for past in attempts if (other := _recipe_in(past.extra)) and _is_like(recipe, other)]
    return {
        "hypothesis": idea["hypothesis"],
        "approach_family": idea["family"],
        "target_files": [idea["target_file"]],
        "steps": [{"step": 1, "file": idea["target_file"], "change": idea["change"]}],
        "expected_outcome": {
            "metric": settings.primary_metric,
            "estimated_impact": idea["estimated_impact"],
            "rationale": idea["evidence"],
        },
        "history_reference": {
            "builds_on": _rounds(past.iteration for past in alike if past.won),
            "avoids": _rounds(past.iteration for past in alike if not past.won),
        },
        RECIPE: idea["recipe"],
    }


def _is_like(one: Recipe, other: Recipe) -> bool:
    return (one.transformation, one.path) == (other.transformation, other.path)


def _rounds(numbers: Iterable[int]) -> str:
    return ", ".join(f"round {number}" for number in sorted(set(numbers))[-20:]) or "none"


def advice(
    plan: Plan,
    attempts: list[Attempt],
    settings: Settings,
    *,
    missing: Collection[str],
    sealed: Collection[str],
) -> dict[str, Any]:
    """Return the architect's answer: six points, each looked up.

    Args:
        plan: The plan.
        attempts: What was tried so far.
        settings: For scope and metric.
        missing: Target files that do not exist.
        sealed: Sealed paths.
    """
    scope, targets = settings.scope, plan.target_files
    outside = [t for t in targets if not matches(t, scope.include) or matches(t, scope.exclude)]
    closed = [target for target in targets if matches(target, sealed)]
    expected = plan.expected_outcome
    faults = {
        "testability": [] if recipe_of(plan) else ["the plan has no recipe that could be carried out"],
        "novelty": ["the same change was tried already"] if _is_spent(plan, attempts) else [],
        "scope": [f"{target} is out of scope" for target in outside],
        "target_files": [f"{t} does not exist" for t in missing] + [f"{t} is sealed" for t in closed],
        "clarity": [
            f"the step in {s.file} names no target file" for s in plan.steps if s.file not in targets
        ],
        "expected_outcome": [] if expected.metric or expected.rationale else ["no effect is stated"],
    }
    concerns = [fault for found in faults.values() for fault in found]
    return {
        "verdict": "reject" if concerns else "approve",
        "feedback": "; ".join(concerns)[:2000]
        or "All six points were checked against the code and the record.",
        "structural_concerns": concerns[:50],
        "checks": {name: "fail" if found else "pass" for name, found in faults.items()},
    }


def judgement(plan: Plan, attempts: list[Attempt], barred: str | None) -> dict[str, Any]:
    """Return the critic's answer; the rules that are code decide above it."""
    faults = {
        "h001_hypothesis_count": "",
        "h002_family_streak": f"{barred} won the last two rounds" if plan.approach_family == barred else "",
        "h003_intra_round_diversity": "",
        "schema_valid": "" if recipe_of(plan) else "the plan has no recipe that could be carried out",
        "history_aware": "the same change was tried already" if _is_spent(plan, attempts) else "",
    }
    reasons = [fault for fault in faults.values() if fault]
    return {
        **{name: "fail" if fault else "pass" for name, fault in faults.items()},
        "verdict": "rejected" if reasons else "approved",
        "rejection_reason": "; ".join(reasons) or None,
    }


def _is_spent(plan: Plan, attempts: list[Attempt]) -> bool:
    recipe = recipe_of(plan)
    return recipe is not None and recipe.key in spent(attempts)
