"""`why-was-it-killed.md`, made from the rules that decide a straggler's reason."""

from __future__ import annotations

from pages.words import made_from
from sid_daemon.core.classify import RULES

KILLED_HEAD = f"""\
# Why was it killed?

{made_from("daemon/sid_daemon/core/classify.py")}

An agent that is past its hard deadline (`deadlines.researcher` to `deadlines.executor`) or silent for longer than
`deadlines.executor_idle` is looked at, then killed with everything that it started. What it had edited is committed and
kept under an `archive/…` tag; the rest of the round goes on. A force-kill is not retried. `kill_threshold` executors killed
in one round end that round as `blocked`.

Signs of life are output, stream events, changed files in the worktree, and CPU time: a twentieth of a processor, of the time in
which others left it one. On an overloaded machine a program that computes is therefore not silent (`waiting for a
processor`), and one that sleeps is. With ten computing programs for each core, one that polls cannot be told for sure from one
that works; then the hard deadline ends it.

`sictl show ROUND` prints each kill with its reason and the evidence: the last tool and how often it was repeated, what
the processes were waiting in, the last output (at most 200 characters). `sictl attach --level warning` has the same
as `force_kill` records, and `state/improvements.md` in the track's root lists all of them.

The reason is decided by code from recorded activity, by the first of these rules that holds:

"""


UNKNOWN = """\
What to do: read the last output in `sictl show`, and follow the next one live with `sictl attach --actor executor_1`. An
agent that works, but slowly, needs a longer `deadlines.executor`; one that prints nothing for minutes while it works needs a
longer `deadlines.executor_idle`, whose clock runs from the first sign of life.
"""


MEASURED = """\
## How often it is right

200 stalls, 180 by real processes in the sandbox and 20 by agents that a model on the loopback plays, labelled by what
was simulated (`tests/attacks/test_stalls.py`; the processes' words, ways of talking and ways to hang are drawn with fixed seeds):

| simulated | context_limit | stuck_on_permission | tool_loop | network_timeout | ambiguous_task | unknown |
|---|---|---|---|---|---|---|
| `context_limit` | 30 | | | | | |
| `stuck_on_permission` | | 34 | | | | |
| `tool_loop` | | | 37 | | | |
| `network_timeout` | | | | 36 | | |
| `ambiguous_task` | | | | | 30 | |
| `unknown` | | | | | | 33 |

Simulated by the people who wrote the rules: agents find other words. The evidence is there all the same.
"""


def killed_page() -> str:
    """Return `why-was-it-killed.md`."""
    lines = [KILLED_HEAD.rstrip("\n"), ""]
    lines += [f"{number}. [`{rule.reason}`](#{rule.reason})" for number, rule in enumerate(RULES, 1)]
    lines += [f"{len(RULES) + 1}. [`unknown`](#unknown)"]
    for rule in RULES:
        lines += ["", f"## {rule.reason}", "", f"Seen: {rule.when}.", "", f"What to do: {rule.todo}."]
    lines += [
        "",
        "## unknown",
        "",
        "Seen: nothing that a rule above knows.",
        "",
        UNKNOWN,
        MEASURED,
    ]
    return "\n".join(lines)
