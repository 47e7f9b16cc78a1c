"""The one method table: names, parameters, results and errors of everything that the socket serves.

The daemon's dispatch, `rpc.discover` (an OpenRPC document), and the reference page are made from
`METHODS`; a method that is not in it does not exist. Holds no behaviour and no I/O. The rules come
from the interfaces page, JSON-RPC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic.json_schema import models_json_schema

from sid_protocol import status
from sid_protocol.errors import (
    AlreadyRunning,
    NoSuchRun,
    NotRunning,
    Refused,
    SettingsInvalid,
    ShuttingDown,
    SidError,
    UsageError,
)
from sid_protocol.params import (
    ApplyParams,
    CancelParams,
    ConfigParams,
    HistoryParams,
    IdeaParams,
    InitParams,
    LessonsParams,
    NodeParams,
    NoParams,
    Params,
    PlotParams,
    ReplayParams,
    RoundParams,
    RunParams,
    SetupParams,
    ShutdownParams,
    StartParams,
    SubscribeParams,
    UnsubscribeParams,
)

OPENRPC = "1.3.2"


class OpenRpcDocument(BaseModel):
    """An OpenRPC document."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    openrpc: str
    info: dict[str, JsonValue]
    methods: list[dict[str, JsonValue]]


@dataclass(frozen=True, slots=True)
class Method:
    """One method.

    Attributes:
        name: As called, `group.verb`.
        summary: What it does, one sentence.
        params: Model of its parameters.
        result: Model of its result.
        errors: What it may answer beyond the standard's own errors.
        notices: Notifications that it causes, by name.
    """

    name: str
    summary: str
    params: type[Params]
    result: type[BaseModel]
    errors: tuple[type[SidError], ...] = ()
    notices: Mapping[str, type[BaseModel]] | None = None


_RUN = (NoSuchRun,)
_ALL = (
    Method("daemon.info", "Return what daemon this is.", NoParams, status.DaemonInfo),
    Method(
        "daemon.shutdown",
        "Stop all runs safely, then the daemon; they resume at its next start.",
        ShutdownParams,
        status.Empty,
    ),
    Method(
        "run.init",
        "Set up a track: goal, benchmark, harness, trust; ends when the client hangs up.",
        InitParams,
        status.InitResult,
        (Refused, AlreadyRunning, SettingsInvalid, ShuttingDown),
    ),
    Method(
        "setup.clarify",
        "Let the track's agent ask about the goal: what it understood, and its next question.",
        SetupParams,
        status.ClarifyResult,
        (Refused, SettingsInvalid),
    ),
    Method(
        "setup.benchmark",
        "Let the track's agent write a benchmark, which is kept and not run.",
        SetupParams,
        status.BenchmarkDraft,
        (Refused, SettingsInvalid),
    ),
    Method(
        "run.start",
        "Start or resume the run of a repository's track.",
        StartParams,
        status.StartResult,
        (NoSuchRun, Refused, AlreadyRunning, SettingsInvalid, ShuttingDown),
    ),
    Method(
        "run.replay",
        "Replay a recorded run in a track of its own: no agent, no benchmark, the same commits.",
        ReplayParams,
        status.ReplayResult,
        (NoSuchRun, Refused, AlreadyRunning, SettingsInvalid, ShuttingDown),
    ),
    Method("run.list", "List all known runs.", NoParams, status.RunList),
    Method("run.status", "Return one run.", RunParams, status.RunRow, _RUN),
    Method(
        "run.cancel",
        "Stop a run; answers after it has stopped.",
        CancelParams,
        status.RunStatusResult,
        (NoSuchRun, NotRunning),
    ),
    Method(
        "run.pause",
        "Pause a run before its next step.",
        RunParams,
        status.RunStatusResult,
        (NoSuchRun, NotRunning),
    ),
    Method("run.resume", "Resume a paused run.", RunParams, status.RunStatusResult, (NoSuchRun, NotRunning)),
    Method("run.history", "List a run's rounds, oldest first.", HistoryParams, status.HistoryResult, _RUN),
    Method("run.round", "Return one round in full.", RoundParams, status.RoundResult, _RUN),
    Method("run.idea", "Add an idea for the planners of the next round.", IdeaParams, status.Empty, _RUN),
    Method(
        "run.config",
        "Read settings, or change one.",
        ConfigParams,
        status.ConfigResult,
        (NoSuchRun, Refused, SettingsInvalid),
    ),
    Method(
        "run.diff",
        "Return what the improvement branch changes against the target branch.",
        RunParams,
        status.DiffResult,
        (NoSuchRun, Refused),
    ),
    Method(
        "run.apply",
        "Move the target branch to the improvements.",
        ApplyParams,
        status.ApplyResult,
        (NoSuchRun, Refused),
    ),
    Method("run.plot", "Draw the step chart.", PlotParams, status.PlotResult, (NoSuchRun, Refused)),
    Method(
        "run.export", "Write every view again from the run's database.", RunParams, status.ExportResult, _RUN
    ),
    Method(
        "run.verify",
        "Compare a run's database, files, branch and tags with each other.",
        RunParams,
        status.VerifyResult,
        _RUN,
    ),
    Method(
        "run.calibrate",
        "Measure the benchmark's noise again, on the improvement branch.",
        RunParams,
        status.CalibrateResult,
        (NoSuchRun, Refused, AlreadyRunning),
    ),
    Method(
        "run.lessons",
        "Return what a run has learned, after ending a lesson by hand if one is named.",
        LessonsParams,
        status.LessonsResult,
        (NoSuchRun, Refused),
    ),
    Method("daemon.lessons", "Return what all known runs have learned.", NoParams, status.AllLessonsResult),
    Method(
        "node.run",
        "Run a node once: its model answers, its judge scores; then learn from its last runs.",
        NodeParams,
        status.NodeResult,
        (Refused,),
    ),
    Method(
        "run.summary", "Return how a run ended, or how it is doing.", RunParams, status.SummaryResult, _RUN
    ),
    Method(
        "log.subscribe",
        "Follow the log: the result, then a notification a record.",
        SubscribeParams,
        status.SubscriptionResult,
        _RUN,
        {"log.record": status.LogRecordNotice, "log.dropped": status.LogDroppedNotice},
    ),
    Method("log.unsubscribe", "End a subscription of this connection.", UnsubscribeParams, status.Empty),
    Method("rpc.discover", "Describe all methods as an OpenRPC document.", NoParams, OpenRpcDocument),
)
METHODS: Mapping[str, Method] = {method.name: method for method in _ALL}


def check_params(method: Method, values: Any) -> Params:
    """Return the parameters of a call, checked.

    Args:
        method: The method called.
        values: What the call gave: an object, or None for nothing.

    Raises:
        UsageError: naming the first field at fault and why; `data` is `{field, why}`.
    """
    if values is not None and not isinstance(values, dict):
        raise _usage(method, "params", "must be an object: parameters are by name")
    try:
        return method.params.model_validate(values or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "params"
        why = {
            "extra_forbidden": "is not a parameter of this method",
            "missing": "is missing",
        }.get(first["type"], first["msg"].removeprefix("Value error, "))
        raise _usage(method, field, why) from None


def _usage(method: Method, field: str, why: str) -> UsageError:
    known = ", ".join(method.params.model_fields) or "none"
    return UsageError(
        f"{method.name}: {field}: {why[:1].lower()}{why[1:]}",
        hint=f"its parameters are: {known}",
        data={"field": field, "why": why},
    )


def openrpc_document(version: str) -> dict[str, Any]:
    """Return the OpenRPC document of all methods.

    Args:
        version: The daemon's version.
    """
    models = {m for method in _ALL for m in (method.params, method.result, *(method.notices or {}).values())}
    ordered = sorted(models, key=lambda model: model.__name__)
    _, definitions = models_json_schema(
        [(model, "validation") for model in ordered], ref_template="#/components/schemas/{model}"
    )
    schemas: dict[str, Any] = definitions["$defs"]
    document = {
        "openrpc": OPENRPC,
        "info": {
            "title": "sid",
            "version": version,
            "description": "JSON-RPC 2.0 over a Unix socket, one object or batch a line, UTF-8.",
            "license": {"name": "MIT"},
        },
        "methods": [_describe(method, schemas) for method in _ALL],
    }
    inputs = {method.params.__name__ for method in _ALL}
    shared = {name: schema for name, schema in sorted(schemas.items()) if name not in inputs}
    return {**document, "components": {"schemas": shared}}


def _describe(method: Method, schemas: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = schemas[method.params.__name__].get("properties", {})
    required = schemas[method.params.__name__].get("required", [])
    params = [
        {"name": name, "required": name in required, "schema": fields[name]}
        for name in sorted(fields, key=lambda name: name not in required)  # OpenRPC: the optional ones last
    ]
    described: dict[str, Any] = {
        "name": method.name,
        "summary": method.summary,
        "paramStructure": "by-name",
        "params": params,
        "result": {"name": "result", "schema": _ref(method.result)},
    }
    if method.errors:
        described["errors"] = [
            {"code": error.rpc_code, "message": (error.__doc__ or "").strip().splitlines()[0]}
            for error in method.errors
        ]
    if method.notices:
        described["x-notifications"] = [
            {"name": name, "params": _ref(model)} for name, model in method.notices.items()
        ]
    return described


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}
