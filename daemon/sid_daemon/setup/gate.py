"""The set-up gate as pure functions: what `init`'s flags make of the settings, and what is still missing.

Called by `intake`. Goal, benchmark, harness and trust must all be there before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import JsonValue

from sid_daemon.goal import FAMILY_NAME, Goal
from sid_daemon.track_config import check_topic
from sid_protocol.errors import UsageError
from sid_protocol.ids import topic_slug
from sid_protocol.params import InitParams
from sid_protocol.settings import Settings, with_value
from sid_protocol.status import GoalScore

_SHARED = tuple(Settings.model_fields)[: tuple(Settings.model_fields).index("agent_backend")]
FRESH: dict[str, JsonValue] = {
    **Settings().model_dump(mode="json", include=set(_SHARED)),
    "plateau_threshold": "1%",
    "regression_threshold": "5%",
}
"""New settings: every key that other self-improve tools read, and thresholds that fit any metric."""
ENOUGH = 80
_VAGUE = re.compile(r"\b(?:better|improve|good|nice|optimi[sz]e|fast(?:er)?|clean)\b", re.IGNORECASE)


def merged_settings(
    present: Mapping[str, JsonValue] | None,
    params: InitParams,
    default_branch: str,
    *,
    has_key: bool = False,
) -> dict[str, JsonValue]:
    """Return raw settings: what is there, then the flags, then `--set`.

    Args:
        present: The settings file as it is, or None for a new track.
        params: The flags.
        default_branch: The target branch of a new track whose flags name none.
        has_key: Whether a model can be called, which a new track then does that names no back end.
    """
    raw: dict[str, JsonValue] = (
        dict(present) if present is not None else {**FRESH, "target_branch": default_branch}
    )
    raw.setdefault("target_branch", default_branch)
    if params.topic is not None or present is None:
        raw["topic_slug"] = topic_slug(params.topic or "")
    backend = params.backend
    if backend is None and params.agent_command is not None and raw.get("agent_backend") is None:
        backend = "command"
    if backend is None and present is None and has_key and params.agent_command is None:
        backend = "anthropic"
    direction = {"higher": "higher_is_better", "lower": "lower_is_better", None: None}[params.direction]
    flags: dict[str, JsonValue] = {
        "benchmark_command": params.benchmark,
        "benchmark_format": params.format,
        "benchmark_direction": direction,
        "primary_metric": params.metric,
        "target_value": params.target,
        "guard_command": list(params.guard) or None,
        "sealed_files": list(params.sealed) or None,
        "number_of_agents": params.agents,
        "max_iterations": params.rounds,
        "agent_backend": backend,
        "agent_command": params.agent_command,
    }
    raw |= {key: value for key, value in flags.items() if value is not None}
    if params.scope:
        raw = with_value(raw, "scope.include", list(params.scope))
    if params.out_of_scope:
        raw = with_value(raw, "scope.exclude", list(params.out_of_scope))
    named = raw
    for key, value in params.set.items():
        raw = with_value(raw, key, value)
    check_topic(named, raw)
    return raw


def missing_flags(objective: str, settings: Settings, *, trusted: bool) -> list[str]:
    """Return the flags without which nothing can start, all at once."""
    missing = []
    if not objective.strip():
        missing.append("--objective")
    if not settings.benchmark_command.strip():
        missing.append("--benchmark")
    if settings.agent_backend == "command" and not settings.agent_command.strip():
        missing.append("--agent-command")
    if not trusted:
        missing.append("--trust")
    return missing


def goal_of(settings: Settings, objective: str) -> Goal:
    """Return the goal that the settings state."""
    return Goal(
        objective=objective,
        metric=settings.primary_metric,
        target=settings.target_value,
        direction=settings.benchmark_direction,
        scope=tuple(pattern for pattern in settings.scope.include if pattern != "**"),
        out_of_scope=tuple(settings.scope.exclude),
    )


def score_goal(objective: str, params: InitParams) -> list[GoalScore]:
    """Score the goal's four dimensions from 0 to 100, weakest first, each with the question to ask."""
    words = len(objective.split())
    vague = bool(_VAGUE.search(objective)) and words < 3
    clear = 0 if not words else 50 if vague else 85 if words < 6 else 100
    scores = [
        GoalScore(dimension="objective", score=clear, question="What should be better when this is done?"),
        GoalScore(
            dimension="metric",
            score=100 if params.metric or params.format else 80 if params.benchmark else 20,
            question="Which number tells that it is better, and is higher or lower better?",
        ),
        GoalScore(
            dimension="target",
            score=100 if params.target is not None else 80,
            question="At which value would you stop? (Enter: as far as it goes)",
        ),
        GoalScore(
            dimension="scope",
            score=100 if params.scope else 80,
            question="Which files may be changed? (globs; Enter: all that are not sealed)",
        ),
    ]
    return sorted(scores, key=lambda one: one.score)


def families_of(params: InitParams) -> tuple[tuple[str, str], ...]:
    """Return `(name, description)` of `--family NAME` or `--family "NAME: description"`.

    Raises:
        UsageError: a name that `harness.md` could not be read back with.
    """
    found = []
    for name, _, about in (text.partition(":") for text in params.family):
        plain = name.strip().strip("`")
        if not re.fullmatch(FAMILY_NAME, plain):
            raise UsageError(
                f"{plain!r} is not a name for an approach family",
                hint="use letters, digits, _ and -: --family NAME or --family 'NAME: description'",
            )
        found.append((plain, about.strip() or "a family of yours"))
    return tuple(found)
