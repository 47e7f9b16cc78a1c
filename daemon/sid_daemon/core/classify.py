"""Why was a straggler stuck: one table of rules over the evidence, first match wins.

Pure. Called by the round machine when evidence arrives; the page `docs/how-to/why-was-it-killed.md` is made
from `RULES`. The vocabulary is the force-kill record's; the order puts what the model said itself first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sid_protocol.events import Activity
from sid_protocol.records import ReasonName

_CONTEXT = re.compile(
    r"prompt is too long|context[ _-]?(?:length|window|limit)|maximum context|model_context_window"
    r"|max_tokens|too many tokens|conversation (?:is )?too long|auto-?compact",
    re.IGNORECASE,
)
_PERMISSION = re.compile(
    r"permission (?:denied|required|request)|requires? (?:your )?approval|approve\b.*\?|allow\b.*\?"
    r"|\[y/n\]|\(y/n\)|\(yes/no|do you want to (?:proceed|continue)|press enter to|password:"
    r"|haven't granted|grant(?:ed)? permission|passphrase",
    re.IGNORECASE,
)
_NETWORK = re.compile(
    r"timed? ?out|connection (?:refused|reset|closed|error|lost)|temporary failure in name resolution"
    r"|could not resolve|network is unreachable|overloaded|rate.?limit|\b429\b|\b529\b|econnre|etimedout"
    r"|getaddrinfo|service unavailable|\b503\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"could you (?:please )?(?:clarify|specify|tell|provide)|please (?:clarify|specify|confirm)"
    r"|which (?:file|one|of|option)|unclear|ambiguous|what (?:should|do you want|would you like)"
    r"|need more (?:information|details)|should i\b.*\?|would you like me",
    re.IGNORECASE,
)
_TERMINAL_WAIT = re.compile(r"n_tty_read|tty_read")
_WAIT = re.compile(r" wait_woken ")  # for a terminal or a socket: the open sockets tell which
_SILENT_SOCKET = re.compile(r"^(?:ESTABLISHED|SYN_SENT)", re.IGNORECASE)
CYCLE_LIMIT = 4
CYCLE_REPEATS = 3


def _said(activity: Activity, pattern: re.Pattern[str]) -> bool:
    texts = (*activity.outputs[-8:], activity.snippet, activity.error or "")
    return any(pattern.search(text) for text in texts)


def _cycles(items: tuple[str, ...]) -> bool:
    """Say whether the items end in a cycle of up to four that has come three times."""
    for length in range(1, CYCLE_LIMIT + 1):
        needed = length * CYCLE_REPEATS
        if len(items) >= needed:
            tail = items[-needed:]
            if all(tail[i] == tail[i % length] for i in range(needed)):
                return True
    return False


def _context_limit(a: Activity) -> bool:
    stopped = (a.stop_reason or "") in ("max_tokens", "model_context_window_exceeded")
    return stopped or bool(_CONTEXT.search(a.error or "")) or _said(a, _CONTEXT)


def _stuck_on_permission(a: Activity) -> bool:
    waiting = any(
        _TERMINAL_WAIT.search(state) or (not a.sockets and _WAIT.search(state)) for state in a.process_states
    )
    return a.permission_asked is not None or waiting or _said(a, _PERMISSION)


def _tool_loop(a: Activity) -> bool:
    changed = a.edits if a.recent_edits is None else a.recent_edits
    return changed == 0 and (_cycles(a.tools) or _cycles(a.outputs))


def _network_timeout(a: Activity) -> bool:
    open_long = a.open_request_s is not None and a.open_request_s >= a.idle_s / 2
    silent = any(_SILENT_SOCKET.search(socket) for socket in a.sockets)
    return open_long or silent or _said(a, _NETWORK)


def _ambiguous_task(a: Activity) -> bool:
    quiet_end = a.stop_reason == "end_turn" and a.edits == 0 and not a.claimed_done
    return a.asked_question or quiet_end or _said(a, _QUESTION)


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes:
        reason: The reason that it decides.
        when: What the evidence shows, for people.
        todo: What a user can do about it.
        holds: The test.
    """

    reason: ReasonName
    when: str
    todo: str
    holds: Callable[[Activity], bool]


RULES: tuple[Rule, ...] = (
    Rule(
        "context_limit",
        "the model said so: a stop reason or an error of a full context or output window, or a compaction loop",
        "narrow the goal's scope, or give the role a model with a larger window",
        _context_limit,
    ),
    Rule(
        "stuck_on_permission",
        "a permission or approval request is outstanding, or a process waits for consent on a terminal",
        "run the agent with its flag for unattended use",
        _stuck_on_permission,
    ),
    Rule(
        "tool_loop",
        "the same tool calls, or a cycle of up to four, came three times without a change in the worktree",
        "say in harness.md or idea.md what not to try again",
        _tool_loop,
    ),
    Rule(
        "network_timeout",
        "a request or a socket was open and silent for most of the idle time, or the service was overloaded",
        "look at the network and the model service; raise deadlines.executor_idle if answers are slow",
        _network_timeout,
    ),
    Rule(
        "ambiguous_task",
        "it asked a question, said that the task is unclear, or ended without an edit and without a claim",
        "make the goal more concrete: 'sictl init' interviews again",
        _ambiguous_task,
    ),
)


def classify(activity: Activity) -> ReasonName:
    """Decide a straggler's reason from its evidence; `unknown` where no rule holds."""
    return next((rule.reason for rule in RULES if rule.holds(activity)), "unknown")
