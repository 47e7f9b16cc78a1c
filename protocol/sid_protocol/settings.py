"""Settings of a track (`config/settings.json`): every key, its default, its range, its reason.

The order of the fields is the order of the promises: contract 11, then ours. Each description is the
default's reason; the settings reference page is made from it. Parsing is pure: text in, `Settings`
or `SettingsInvalid` out.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from sid_protocol.errors import SettingsInvalid
from sid_protocol.records import FAMILIES


def _threshold(value: object) -> object:
    """Accept a non-negative number (absolute score units) or a string such as `"1%"` (relative)."""
    if isinstance(value, str):
        text = value.strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = -1.0
        if not text.endswith("%") or not 0 <= number <= 1_000_000:
            raise ValueError('must be a number (score units) or a percentage such as "1%"')
        return text
    return value


Threshold = Annotated[Annotated[float, Field(ge=0, allow_inf_nan=False)] | str, BeforeValidator(_threshold)]
Seconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Command = Annotated[str, Field(max_length=100_000)]


class Group(BaseModel):
    """Base of settings and their groups: unknown keys are refused, types are not bent."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


class Deadlines(Group):
    """Hard limits of one turn, in seconds; the idle clock runs from the first activity seen."""

    researcher: Seconds = Field(600, description="a brief reads the whole code base once")
    planner: Seconds = Field(300, description="one hypothesis, no edits")
    architect: Seconds = Field(300, description="reads one plan and its target files")
    critic: Seconds = Field(300, description="reads one plan")
    executor: Seconds = Field(1800, description="an agent's edit with its own test runs")
    executor_idle: Seconds = Field(300, description="an agent silent for five minutes is stuck")
    benchmark: Seconds = Field(900, description="one benchmark run")
    guard: Seconds = Field(300, description="one guard command")
    setup: Seconds = Field(900, description="installing dependencies once")


class Scope(Group):
    """Which files a candidate may change."""

    include: list[str] = Field(["**"], description="everything that is not sealed")
    exclude: list[str] = Field([], description="nothing more is out of scope")
    max_files: Count | None = Field(None, description="no cap on the number of changed files")
    on_violation: Literal["reject", "warn"] = Field("reject", description="scope is enforced, not asked for")


class Limits(Group):
    """Limits of one job (a process tree)."""

    memory_mb: Count | None = Field(None, description="the machine's own limit")
    processes: Count | None = Field(512, description="stops a fork bomb, allows a parallel build")
    open_files: Count | None = Field(4096, description="four times the usual soft limit")
    file_mb: Count | None = Field(2048, description="stops one runaway file")
    output_mb: Count | None = Field(64, description="what is kept of a job's output, at most")
    worktree_mb: Count | None = Field(4096, description="stops a worktree from filling the disk")


class GuardRule(Group):
    """How one sub-score is guarded."""

    direction: Literal["higher_is_better", "lower_is_better"] = "higher_is_better"
    tolerance: Threshold | None = None


Share = Annotated[float, Field(gt=0, lt=1)]


class Measurement(Group):
    """How a difference is shown; the parameters of the rule in the measurement page."""

    mode: Literal["auto", "deterministic", "noisy"] = Field(
        "auto", description="three equal baseline runs make a benchmark deterministic"
    )
    alpha: Share = Field(0.01, description="one round in a hundred may merge by luck")
    beta: Share = Field(0.20, description="evidence of 5 that the gain is too small ends a test")
    min_effect: Annotated[float, Field(ge=0)] | None = Field(
        None, description="0.005 in noisy mode; any strict gain in deterministic mode"
    )
    calibration_runs: Annotated[int, Field(ge=3, le=100)] = Field(
        5, description="enough to see noise, stops at 3 equal runs"
    )
    slots: Count = Field(
        1, description="parallel benchmarks disturb one another; above 1 only where scores are exact"
    )
    screen_blocks: Annotated[int, Field(ge=1, le=40)] | Literal["auto"] = Field(
        "auto", description="4; 1 where agents cost less than 30 benchmark runs"
    )
    min_pairs: Annotated[int, Field(ge=1)] = Field(4, description="fewer pairs show nothing")
    max_pairs: Annotated[int, Field(ge=1)] = Field(40, description="then it is inconclusive")
    max_minutes: Annotated[float, Field(gt=0)] | None = Field(None, description="pairs decide")
    futility_sd: Annotated[float, Field(ge=0)] = Field(0.75, description="the give-up bar")
    warmup_runs: Annotated[int, Field(ge=0)] = Field(1, description="first runs are slower")
    pairing: Literal["sequential", "duet"] = Field("sequential", description="one at a time")
    fast_lane: Literal["auto", "on", "off"] = Field(
        "auto", description="on where one run takes longer than a minute"
    )
    quiet: bool = Field(False, description="other runs' agents go on while measuring")
    holdout_looks: Count = Field(20, description="each look wears the hold-out out")
    guards: dict[str, GuardRule] = Field({}, description="no sub-score is guarded")
    accept: Literal["improve", "non_inferior"] = Field("improve", description="gains only")
    audit_every: Count = Field(10, description="merges between two comparisons with the baseline")
    run_timeout: Seconds | None = Field(
        None, description="three times the slowest calibration run, at least 60 s"
    )


class Budget(Group):
    """What a run may spend in all; None is no limit."""

    usd: Annotated[float, Field(ge=0)] | None = Field(None, description="no limit in dollars")
    tokens: Count | None = Field(None, description="no limit in tokens")
    wall_s: Seconds | None = Field(
        None, description="no limit in seconds; of the wall clock, so that one set forward spends it"
    )
    calls: Count | None = Field(None, description="no limit in model calls")
    usd_per_round: Annotated[float, Field(ge=0)] | None = Field(None, description="no limit a round")


class Settings(Group):
    """All settings of one track, in the order of the contract."""

    number_of_agents: Count = Field(3, description="three families a round, H003 permitting")
    number_of_max_critics: int = Field(3, description="kept for other tools; has no effect")
    current_repo_url: str = Field("", description="kept for other tools")
    fork_url: str = Field("", description="push goes to origin")
    upstream_url: str = Field("", description="a pull request goes to origin")
    topic_slug: str = Field("default", description="one track a repository")
    target_branch: str = Field("main", description="what the improvement branch starts from")
    benchmark_command: Command = Field("", description="set by init")
    benchmark_format: str = Field("json", description="carries sub-scores")
    benchmark_direction: Literal["higher_is_better", "lower_is_better"] = Field(
        "higher_is_better", description="a score"
    )
    max_iterations: Annotated[int, Field(ge=0)] = Field(50, description="a night or two")
    plateau_threshold: Threshold = Field(0.01, description="a smaller gain counts as a plateau")
    plateau_window: Count = Field(3, description="three small wins in a row end the run")
    target_value: Annotated[float, Field(allow_inf_nan=False)] | None = Field(
        None, description="as far as it goes"
    )
    primary_metric: Annotated[str, Field(min_length=1)] = Field(
        "primary", description="the key of the score in a JSON result"
    )
    sealed_files: list[str] = Field([], description="beyond what the commands name")
    regression_threshold: Threshold = Field(0.05, description="the guards' tolerance")
    circuit_breaker_threshold: Count = Field(3, description="three rounds without a winner")
    auto_push: bool = Field(False, description="nothing leaves the machine unasked")
    auto_pr: bool = Field(False, description="nothing leaves the machine unasked")
    si_claude_setting: bool = Field(False, description="kept for other tools; has no effect")
    agent_backend: Literal["local", "anthropic", "command", "replay"] = Field(
        "local", description="needs neither key nor network"
    )
    agent_command: Command = Field("", description="only for the command back end")
    agent_env: list[str] = Field([], description="an agent's environment is scrubbed")
    models: dict[str, str] = Field({}, description="the back end's own choice")
    base_url: str | None = Field(None, description="the back end's own server")
    api_key_file: str | None = Field(None, description="the key comes from the environment")
    deadlines: Deadlines = Field(Deadlines(), description="hard limits of one turn")
    grace_s: Annotated[float, Field(ge=0, le=60)] = Field(
        2, description="an agent may save its work between SIGTERM and SIGKILL"
    )
    kill_threshold: Count = Field(3, description="so many force-kills block a round")
    blocked_limit: Count = Field(2, description="two blocked rounds in a row end the run")
    scope: Scope = Field(Scope(), description="everything that is not sealed")
    guard_command: list[Command] = Field([], description="no guard")
    holdout_command: Command | None = Field(None, description="no hold-out")
    setup_command: Command | None = Field(None, description="nothing to prepare")
    share_paths: list[str] = Field([], description="a checkout holds tracked files only")
    agent_paths: list[str] = Field([], description="an agent sees nothing of HOME")
    benchmark_paths: list[str] = Field([], description="a benchmark sees its checkout only")
    agent_network: bool = Field(True, description="model services are on the network")
    benchmark_network: bool = Field(False, description="a score must not depend on the network")
    setup_network: bool = Field(True, description="packages are on the network")
    sandbox: Literal["auto", "off"] = Field("auto", description="bubblewrap where it works")
    limits: Limits = Field(Limits(), description="of one job")
    measurement: Measurement = Field(Measurement(), description="how a difference is shown")
    budget: Budget = Field(Budget(), description="no limit")
    max_parallel_executors: Count | None = Field(None, description="all at once")
    detectors: dict[str, Literal["ignore", "warn", "reject"]] = Field(
        {}, description="each detector's own default"
    )
    score_bounds: (
        Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=2, max_length=2)]
        | None
    ) = Field(None, description="any finite score is possible")
    score_token: bool = Field(False, description="the benchmark need not echo a token")
    lessons_window: Count = Field(5, description="runs looked back upon")
    lesson_threshold: Count = Field(2, description="runs that make a lesson")
    lesson_probe: Annotated[float, Field(ge=0, le=1)] = Field(
        0.1, description="share of rounds that hold a lesson out"
    )
    on_branch_moved: Literal["stop", "rebase"] = Field("stop", description="the user decides")
    research_fanout: Count = Field(1, description="one researcher")
    review_candidates: bool = Field(False, description="the benchmark judges")
    record: bool = Field(False, description="a recording takes room; it can be turned on at any time")
    replay_from: str | None = Field(
        None, description="the run that a replay makes again; `sictl replay` sets it"
    )

    @model_validator(mode="after")
    def _formats_fit(self) -> Self:
        form = self.benchmark_format
        if form not in ("json", "number", "pass_fail") and not form.startswith("regex:"):
            raise ValueError("benchmark_format must be json, number, pass_fail or regex:PATTERN")
        if self.score_bounds and self.score_bounds[0] > self.score_bounds[1]:
            raise ValueError("score_bounds must be [low, high]")
        return self


TRUSTED_KEYS = (
    "benchmark_command",
    "guard_command",
    "holdout_command",
    "setup_command",
    "agent_command",
    "agent_backend",
    "agent_env",
    "agent_paths",
    "share_paths",
    "benchmark_paths",
    "agent_network",
    "benchmark_network",
    "setup_network",
    "sandbox",
    "sealed_files",
    "scope",
    "auto_push",
    "auto_pr",
    "base_url",
)
"""What trust covers: any change of these asks the user again."""


def trust_digest(settings: Settings) -> str:
    """Return the SHA-256 (hex) of the settings that trust covers."""
    covered = settings.model_dump(mode="json", include=set(TRUSTED_KEYS))
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()


def _known_keys(path: tuple[str | int, ...]) -> list[str]:
    model: type[BaseModel] = Settings
    for part in path:
        field = model.model_fields.get(str(part))
        inner = field.annotation if field else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)


def _key_of(location: tuple[str | int, ...], values: JsonValue) -> str:
    """Return the dotted key of a place in the values; which type of several was tried is no part of it."""
    parts, at = [], values
    for part in location:
        if isinstance(at, dict) and part in at:
            at = at[str(part)]
        elif isinstance(at, list) and isinstance(part, int):
            at = at[part]
        else:
            continue
        parts.append(str(part))
    return ".".join(parts) or "settings"


def _default_hint(key: str) -> str:
    value: JsonValue = Settings().model_dump(mode="json")
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            break
        value = value[part]
    else:
        return f"the default is {json.dumps(value)}"
    return "'sictl config list' shows all settings"


def _first_error(error: ValidationError, values: dict[str, JsonValue]) -> SettingsInvalid:
    first = error.errors(include_url=False)[0]
    location = first["loc"]
    key = _key_of(location, values)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(location[-1]), _known_keys(location[:-1]), n=1)
        hint = f"did you mean {near[0]}?" if near else "'sictl config list' shows all keys"
        return SettingsInvalid(key, "unknown key", hint=hint)
    why = first["msg"].removeprefix("Value error, ")
    got = first["input"]
    if key == "settings":  # said of the settings as a whole, and begun with the key that is at fault
        key, why = why.split(" ", 1)
        got = got.get(key)
    told = f"{why[:1].lower()}{why[1:]} (got {_typed(got)})"
    return SettingsInvalid(key, told, hint=_default_hint(key))


def _typed(value: object) -> str:
    """Return a refused value as one types it: JSON, or a bare word in quotes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return repr(text[:80]) if isinstance(value, str) else text[:80]


def _finite(name: str) -> float:
    raise SettingsInvalid("settings", f"{name} is not a finite number")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise SettingsInvalid(key, "stands twice", hint="keep one of them")
        seen[key] = value
    return seen


def parse_json_object(text: str, what: str) -> dict[str, JsonValue]:
    """Read one JSON object strictly: no NaN, no key twice, no deep nesting.

    Raises:
        SettingsInvalid: naming `what` and the place of the fault.
    """
    try:
        value = json.loads(text, parse_constant=_finite, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise SettingsInvalid(what, f"is not valid JSON: {error}", hint="fix the file") from None
    if not isinstance(value, dict):
        raise SettingsInvalid(what, "is not a JSON object", hint="fix the file")
    return value


TYPING_ERROR = 0.8
"""How alike an unknown key is to a known one, as `difflib` counts, to be that one mistyped: one letter in five."""


def parse_file(values: dict[str, JsonValue]) -> Settings:
    """Check the settings file, whose keys of other tools are kept and not read (contracts, first paragraph).

    Raises:
        SettingsInvalid: as `parse_settings`; an unknown key only where a known one is likely to be meant.
    """
    known = Settings.model_fields
    ours = {
        key: value
        for key, value in values.items()
        if key in known or difflib.get_close_matches(key, known, n=1, cutoff=TYPING_ERROR)
    }
    return parse_settings(ours)


def parse_settings(values: dict[str, JsonValue]) -> Settings:
    """Check a JSON object of settings.

    Raises:
        SettingsInvalid: naming the first key at fault, why, and what was meant if that is likely.
    """
    try:
        # JSON has no integers apart from floats: 3 for a float is right, "3" is not.
        return Settings.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise _first_error(error, values) from None


def with_value(values: dict[str, JsonValue], key: str, value: JsonValue) -> dict[str, JsonValue]:
    """Return a copy of raw settings with a dotted key set; an object is merged into the present one."""
    head, _, rest = key.partition(".")
    present = values.get(head)
    inner = dict(present) if isinstance(present, dict) else {}
    if rest:
        return {**values, head: with_value(inner, rest, value)}
    if isinstance(value, dict) and inner:
        return {**values, head: {**inner, **value}}
    return {**values, head: value}


def refuse_unknown(key: str) -> None:
    """Refuse a dotted key that no settings can have; one of a free-form object may just not be there yet.

    Raises:
        SettingsInvalid: there is no such key; with the nearest that there is.
    """
    try:
        parse_settings(with_value({}, key, None))
    except SettingsInvalid as error:
        if error.why == "unknown key":
            raise
        if key.startswith(f"{error.key}."):
            raise SettingsInvalid(key, "unknown key", hint=f"{error.key} has no keys below it") from None


def check_family_count(settings: Settings, custom_families: tuple[str, ...]) -> None:
    """Refuse more agents than approach families, since H003 could never pass them.

    Raises:
        SettingsInvalid: `number_of_agents` is above the number of families.
    """
    families = len(set(FAMILIES) | set(custom_families))
    if settings.number_of_agents > families:
        raise SettingsInvalid(
            "number_of_agents",
            f"{settings.number_of_agents} agents need as many approach families, there are {families}",
            hint="lower it, or add families to harness.md ('sictl init --family NAME')",
        )
