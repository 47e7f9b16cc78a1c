"""`events.md`: what the log tells and what the journal holds.

Names and levels of log records are found in the code, what each tells stands in `LOG_RECORDS`; a name that is in
one of them alone is an error.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pages.words import cell, first_line, made_from, table
from sid_protocol import commands, events
from sid_protocol.log_levels import LOG_LEVELS

CODE = Path(__file__).parents[2]
LOG_RECORDS = {
    "run_created": "`init` made the run: `baseline`, `commit`, `root`",
    "run_started": "`start`, or the daemon resumed it: `resumed`, `after_crash`, `rounds`",
    "round_started": "a round begins: `head`, `best_score`, `ideas` taken",
    "ladder_step": "so many rounds in a row had no winner, and this one looks otherwise: `rung` `of`, `name`, `rounds`, `told`",
    "round_resumed": "a round that was under way goes on",
    "step_started": "a step of the round begins; steps overlap",
    "brief_done": "research is done: number of `ideas`",
    "plan_drafted": "a planner's plan: `plan`, `family`, `hypothesis`",
    "plan_advised": "the architect's advice on one: `verdict`",
    "plan_approved": "the critic let one through",
    "plan_rejected": "the critic or a rule refused one: `rule`, `reason`",
    "executor_started": "an executor carries a plan out: `plan`, `attempt`, `rework`",
    "candidate_committed": "what it left in its worktree is a commit: `commit`, `diff_stat`, `findings`",
    "candidate_failed": "a candidate is out: `status`, `category`, `reason`",
    "guards_done": "the guard commands have run: `passed`, `red`",
    "benchmark_sample": "one benchmark run: `arm`, `stage`, `score`, `status`",
    "benchmark_finished": "a candidate has its score: `status`, `score`",
    "agent_failed": "a turn failed: `role`, `attempt`, `reason`",
    "agent_stderr": "a line that an agent printed to standard error: `line`",
    "actor_crashed": "part of the daemon itself failed and is restarted: `reason`",
    "work_failed": "git, the disk or the machine stood in the way: `reason`, `hint`",
    "deadline_passed": "a turn is past its deadline: `clock` (hard or idle)",
    "force_kill": "it was killed: `reason`, `last_tool`, `repeats`, `waiting_in`, `snippet`, `processes_killed`",
    "model_called": "a call of a model has ended: `model`, tokens, `usd`, `stop_reason`",
    "model_call_failed": "the service failed or refused: `model`, `why`",
    "tool_called": "a model's agent uses a tool: `tool`, `arguments`",
    "tool_refused": "a tool call cannot be carried out: `tool`, `why`",
    "tool_results_dropped": "the oldest results of tools are left out of a model's context: `count`",
    "price_unknown": "dollars of a budget do not hold for a model without a price: `model`",
    "budget_used": "a share of a limit of the budget is used up: `budget`, `share`, `spent`, `limit`",
    "round_blocked": "so many force-kills that the round ends: `force_kills`",
    "merge_tried": "a candidate was merged in the object database: `conflict`",
    "verdict": "the tournament's outcome in a line: `told`",
    "merged": "the improvement branch moved: `commit`, `ref`, `score_before`, `score`",
    "branch_moved": "somebody else moved the improvement branch: `expected`, `actual`",
    "ideas_returned": "no plan came of the user's ideas, so they are back in `idea.md`",
    "recalibrated": "the noise was measured anew, since the machine or the branch changed",
    "audit": "what all merges together gained, baseline against head, measured anew",
    "lesson_promoted": "a fault came back so often that agents are told: `lesson`, `rule`, `rounds`, `runs`",
    "lessons_held_out": "the round does without these `lessons`, to see whether they make a difference",
    "lesson_retired": "it made no difference: `lesson`, `reason`",
    "lesson_dropped": "it was the least useful of too many: `lesson`, `reason`",
    "lesson_forgotten": "the user ended it: `lesson`",
    "lessons_unreadable": "a file of another run's lessons tells nothing and was passed over: `why`",
    "round_recorded": "a round is over: `status`, `score`, `candidates`, `rejected`, `force_kills`, `reason`",
    "note": "a line for the user: `told`",
    "stop_requested": "`sictl stop`, or the daemon leaves: `now`",
    "run_paused": "no new step begins",
    "run_resumed": "the pause is over",
    "config_changed": "a setting is another: `field`, `old_value`, `new_value`, `source` (`user`, or `settings.json` for an edit by hand)",
    "phase_transition": "the goal's present phase or milestone is another: `phase`, `milestone`",
    "run_ended": "how and why: `status`, `reason`, `summary`, `hint`",
    "failure_not_recorded": "that a run ended as `failed` could not be written to its journal: `why`",
    "restored_from_copy": "the run's database was missing; the daemon's copy of the last recorded round is used",
    "resume_failed": "a run that was active when the last daemon ended cannot go on: `why`",
    "view_not_written": "a contract file could not be written; the database has what it would have said",
    "chart_not_drawn": "the chart could not be drawn: `why`",
    "daemon_started": "`version`, `pid`",
    "daemon_leaving": "runs are suspended: `runs`, `now`",
    "trash_left": "a folder that is no longer needed could not be deleted; the next start tries again: `path`, `why`",
    "tree_not_prepared": "a kept checkout could not be brought to the next round's commit and is made anew: `path`, `why`",
    "left_alone": "a path in the way that sid did not make: `why`",
    "salvage_failed": "a killed executor's edits could not be committed: `why`",
    "cleanup_failed": "worktrees could not be removed; the next start tries again: `why`",
    "cleanup_cut_short": "removing worktrees took too long; the next start removes the rest",
    "end_not_noted": "a run has ended, but the registry cannot be written: `why`; the next daemon finds out",
    "lock_removed": "a daemon that was killed while it wrote a ref left its lock: `why`",
    "leftovers_killed": "processes of a daemon that was killed: `processes`",
    "no_sandbox": "bubblewrap does not work here: `why`",
    "socket_lost": "the daemon's socket is gone and cannot be made again yet; tried every 10 s: `path`, `why`",
    "socket_made_again": "somebody had deleted the daemon's socket or its folder: `path`",
    "rpc_out_of_descriptors": "too many open files to take a client",
    "rpc_peer_refused": "another user knocked: `peer_uid`, `peer_pid`",
    "rpc_too_many_clients": "a client was turned away: `clients`",
    "rpc_fault": "a defect in a method; the client was told the id: `method`, `fault`",
    "log_file_broken": "the log file cannot be written: `error`",
    "log_records_lost": "the queue was full: `count`",
}
EVENTS_HEAD = f"""\
# Events

{made_from("daemon/sid_daemon/, protocol/sid_protocol/events.py and protocol/sid_protocol/commands.py")}

## Log records

What `sictl attach`, the log files, the systemd journal and every subscriber get: one JSON object a line with `timestamp` (ISO 8601,
UTC), `level`, `event`, and where they apply `run_id`, `iteration`, `step`, `actor`, `candidate`, `duration_s`. `sictl attach
--json` has every field and the `cursor`, which grows over the life of the state directory; the text form leaves out
what is as usual. Names are promises, fields are added at will.
"""
JOURNAL_HEAD = """\

## The journal

What a run's database holds, and all that decides: an event is written before anything follows from it, and
the state is their fold. Field by field they are in `protocol/sid_protocol/events.py`; they change with the schema's version.
"""


def emitting() -> list[Path]:
    """Return the modules that may emit log records."""
    return [
        *CODE.glob("daemon/sid_daemon/**/*.py"),
        CODE / "actors/sid_actors/supervisor.py",
        *CODE.glob("actors/sid_actors/backends/model/*.py"),
        *CODE.glob("actors/sid_actors/workbench/checkouts/*.py"),
    ]


def log_names() -> dict[str, str]:
    """Return every record name that the code emits, with its levels."""
    found: dict[str, set[str]] = {}
    for path in emitting():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name, levels in named_by(node):
                found.setdefault(name, set()).update(levels)
    return {name: ", ".join(sorted(levels, key=LOG_LEVELS.index)) for name, levels in found.items()}


def named_by(node: ast.AST) -> list[tuple[str, tuple[str, ...]]]:
    """Return `(name, levels)` of a `LogRecord(level, name, fields)` or of a call that emits one."""
    match node:
        case ast.Call(func=ast.Name(id="LogRecord"), args=[level, ast.Constant(value=str(name)), _]) if (
            _levels(level)
        ):
            return [(name, _levels(level))]
        case ast.Assign(
            targets=[ast.Name(id="name")],
            value=ast.IfExp(body=ast.Constant(value=str(one)), orelse=ast.Constant(value=str(other))),
        ):
            return [(one, ("info",)), (other, ("info",))]
        case ast.Call(
            func=ast.Attribute(attr="emit" | "_emit" | "tell") | ast.Name(id="emit" | "tell"),
            args=[level, ast.Constant(value=str(name)), *_],
        ) if _levels(level):
            return [(name, _levels(level))]
        case ast.Call(
            func=ast.Attribute(attr=method, value=ast.Attribute(attr="_log") | ast.Name(id="log")),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [(name, ("error" if method == "exception" else method,))]
        case ast.Call(func=ast.Attribute(attr="tell" | "_requeue"), args=[ast.Constant(value=str(name)), *_]):
            return [(name, ("warning",))] if re.fullmatch(r"[a-z_]+", name) else []
        case _:
            return []


def _levels(node: ast.expr) -> tuple[str, ...]:
    """Return the levels that an expression may stand for; none if it is no level."""
    match node:
        case ast.Constant(value=str(value)):
            return (value,) if value in LOG_LEVELS else ()
        case ast.IfExp(body=one, orelse=other):
            return (*_levels(one), *_levels(other)) if _levels(one) and _levels(other) else ()
        case ast.Name(id="level"):
            return ("info", "warning")
        case _:
            return ()


def events_page() -> str:
    """Return `events.md`.

    Raises:
        LookupError: the code emits a record that the table lacks, or the table has one that the code does not.
    """
    names = log_names()
    if odd := set(names) ^ set(LOG_RECORDS):
        raise LookupError(
            f"LOG_RECORDS in docs/pages/events.py and the code differ in: {', '.join(sorted(odd))}"
        )
    rows = [(f"`{name}`", names[name], cell(told)) for name, told in LOG_RECORDS.items()]
    lines = [EVENTS_HEAD, *table(("event", "level", "tells"), rows), JOURNAL_HEAD]
    lines += table(("event", "what happened"), _kinds(events, events.Event))
    lines += [
        "",
        "## Commands",
        "",
        "What the core asks of the actors; each is answered by exactly one event.",
        "",
    ]
    lines += table(("command", "what is asked"), _kinds(commands, commands.Command))
    return "\n".join(lines) + "\n"


def _kinds(module: Any, base: type[BaseModel]) -> list[tuple[str, ...]]:
    found = [thing for thing in vars(module).values() if isinstance(thing, type) and issubclass(thing, base)]
    return [
        (f"`{thing.model_fields['kind'].default}`", first_line(thing))
        for thing in found
        if "kind" in thing.model_fields
    ]
