"""The parameters of the RPC methods: by name, strictly typed, nothing unknown, no NUL bytes.

Paths are absolute, since daemon and client stand in different folders. Checked by
`sid_protocol.rpc.check_params`; a field here is a promise of the interfaces page.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from sid_protocol.log_levels import LogLevel

TEXT_LIMIT = 100_000


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL byte")
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("must be an absolute path")
    return path


def _run(text: str) -> str:
    if text in (".", "..") or ("/" in text and not text.startswith("/")):
        raise ValueError("must be a run id, at least 4 characters of one, or an absolute path")
    return text


def _refuse_nul(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return _no_nul(value)
    if isinstance(value, list):
        for item in value:
            _refuse_nul(item)
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_nul(key)
            _refuse_nul(item)
    return value


def _refuse_nuls(values: dict[str, JsonValue]) -> dict[str, JsonValue]:
    _refuse_nul(values)
    return values


Text = Annotated[str, Field(max_length=TEXT_LIMIT), AfterValidator(_no_nul)]
Name = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_no_nul)]
Topic = Annotated[str, Field(max_length=4096), AfterValidator(_no_nul)]
"""An empty one is `default`, as every text is that has no letter or digit."""
Path = Annotated[Name, AfterValidator(_absolute)]
RunRef = Annotated[Name, AfterValidator(_run)]
Value = Annotated[JsonValue, AfterValidator(_refuse_nul)]
Values = Annotated[dict[Name, JsonValue], AfterValidator(_refuse_nuls)]
Texts = Annotated[list[Text], Field(max_length=1000)]


class Params(BaseModel):
    """Base of all parameters: by name, nothing unknown, types not bent."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True)


class NoParams(Params):
    """No parameters."""


class ShutdownParams(Params):
    """Of `daemon.shutdown`."""

    now: bool = Field(default=False, description="End runs without a grace period.")


class InitParams(Params):
    """Of `run.init`: the flags of `sictl init`."""

    repo: Path
    objective: Text | None = None
    metric: Name | None = None
    target: float | None = None
    direction: Literal["higher", "lower"] | None = None
    scope: Texts = []
    out_of_scope: Texts = []
    benchmark: Text | None = None
    format: Text | None = Field(default=None, description="json, number, pass_fail or regex:PATTERN.")
    guard: Texts = []
    sealed: Texts = []
    rule: Texts = []
    family: Texts = []
    agents: Annotated[int, Field(ge=1)] | None = None
    rounds: Annotated[int, Field(ge=0)] | None = Field(default=None, description="Sets max_iterations.")
    backend: Name | None = None
    agent_command: Text | None = None
    topic: Topic | None = None
    root: Path | None = None
    set: Values = Field(default={}, description="Dotted key → value, as `--set KEY=JSON`.")
    trust: bool = Field(default=False, description="The user confirms this path and these settings.")
    dry_run: bool = Field(default=False, description="Tell what would be, write and run nothing.")


class SetupAnswer(Params):
    """One question of a set-up agent, and what the user said."""

    question: Text
    answer: Text


class SetupParams(InitParams):
    """Of `setup.clarify` and `setup.benchmark`: the flags so far, and the interview so far."""

    answers: Annotated[list[SetupAnswer], Field(max_length=100)] = []
    confirmed: bool = Field(
        default=False, description="The user lets this agent read this repository, at their cost."
    )


class StartParams(Params):
    """Of `run.start`."""

    repo: Path
    topic: Topic | None = None
    root: Path | None = None
    rounds: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="At most so many more rounds from now; not stored."
    )


class RunParams(Params):
    """Of every method about one run."""

    run: RunRef = Field(description="Run id, at least 4 characters of one, or a repository's absolute path.")
    topic: Topic | None = Field(default=None, description="Which track, where a path has several.")


class ReplayParams(RunParams):
    """Of `run.replay`."""

    repo: Path | None = Field(
        default=None, description="A clone to replay it in; absent, the repository that it was recorded in."
    )
    into: Name | None = Field(default=None, description="Topic of the replay; absent, a new one.")
    root: Path | None = Field(default=None, description="Root of the replay, where it is not the usual one.")


class CancelParams(RunParams):
    """Of `run.cancel`."""

    now: bool = Field(default=False, description="At most 1 s, no grace.")


class HistoryParams(RunParams):
    """Of `run.history`."""

    since: Annotated[int, Field(ge=0)] = Field(default=0, description="Rounds after this one.")
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000


class RoundParams(RunParams):
    """Of `run.round`."""

    iteration: Annotated[int, Field(ge=0)] = Field(description="The round; 0 is the last one.")


class IdeaParams(RunParams):
    """Of `run.idea`."""

    text: Annotated[
        str,
        Field(min_length=1, max_length=TEXT_LIMIT),
        AfterValidator(_no_nul),
        AfterValidator(_not_blank),
    ]


class LessonsParams(RunParams):
    """Of `run.lessons`."""

    forget: Name | None = Field(default=None, description="Key of a lesson in force that is to end now.")


class ConfigParams(RunParams):
    """Of `run.config`: nothing, a key, or a key and its new value."""

    key: Name | None = None
    value: Value = None

    @model_validator(mode="after")
    def _value_has_key(self) -> Self:
        if self.sets and self.key is None:
            raise ValueError("value needs a key")
        return self

    @property
    def sets(self) -> bool:
        """Whether a value is given; null is one, too."""
        return "value" in self.model_fields_set


class ApplyParams(RunParams):
    """Of `run.apply`."""

    confirm: bool = Field(default=False, description="Without it, only tell what would be done.")


class PlotParams(RunParams):
    """Of `run.plot`."""

    format: Literal["png", "svg"] = "png"


class NodeParams(Params):
    """Of `node.run`."""

    node: Path = Field(description="The node's folder: PROMPT.md, judge.sh, BANS.md, hard-cap.txt.")
    seed: Path = Field(description="The file with the run's input.")
    cwd: Path = Field(description="Where relative paths of `model` are looked up.")
    model: Text | None = Field(
        default=None, description="Reads a prompt, writes an answer; null is the program `model` of the node."
    )
    agent_env: Texts = Field(default=[], description="What else of the environment the model gets.")
    agent_paths: Texts = Field(default=[], description="What else it sees, as the setting of this name.")
    window: Annotated[int, Field(ge=1)] = Field(default=5, description="Runs looked back upon for lessons.")
    threshold: Annotated[int, Field(ge=1)] = Field(default=2, description="Runs that make a lesson.")
    sandbox: bool = Field(default=True, description="False lets model and judge run as the user.")


class SubscribeParams(Params):
    """Of `log.subscribe`."""

    run: RunRef | None = None
    topic: Topic | None = None
    level: LogLevel | None = Field(default=None, description="Only records of this level or above.")
    actor: Name | None = None
    since: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="Records after this cursor; absent, the last 20 that match, then live."
    )
    follow: bool = Field(
        default=True, description="False: what there is now, then the result, and no subscription is left."
    )


class UnsubscribeParams(Params):
    """Of `log.unsubscribe`."""

    subscription: int
