"""A scripted agent: what it answers and edits stands in `script.json` beside it, first rule that fits.

Run by the daemon as `agent_command`, a process a turn; without a rule it is a good agent that raises the number
in `value.txt`. It notes each turn in the folder `seen`. A rule names any of role, agent, round, turn (how often
this agent was asked in this round, from 1) and what to do, in this order:
`children`, `edit`, `remove`, `beat` (note the time again and again until `seen/enough` is there), `stderr`, `print`,
`wait` (for the named gate), `hang`, `exit`.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
FAMILIES = (
    *("optimization", "data", "infrastructure", "architecture", "training_config", "testing"),
    "documentation",
)


def main():
    role, agent, number = os.environ["SID_ROLE"], os.environ["SID_AGENT_ID"], int(os.environ["SID_ITERATION"])
    turn = note(role, agent, number, sys.stdin.read())
    rule = chosen({"role": role, "agent": agent, "round": number, "turn": turn})
    for kind in rule.get("children", ()):
        run_away(kind)
    if role == "executor":
        edit(rule)
    if "beat" in rule:
        beat()
    sys.stderr.write(rule.get("stderr", ""))
    sys.stderr.flush()
    answer = json.dumps(ANSWERS[role](agent, number, rule))
    sys.stdout.write(rule["print"] * rule.get("times", 1) if "print" in rule else answer)
    sys.stdout.flush()
    if "wait" in rule:
        (HERE / "gates" / rule["wait"]).read_text()
    while rule.get("hang"):
        signal.pause()
    sys.exit(rule.get("exit", 0))


def note(role, agent, number, prompt):
    """Write down what this turn was given, and return the how manieth of this agent's round it is."""
    turn = 1
    while (HERE / "seen" / f"{number}.{role}.{agent}.{turn}").exists():
        turn += 1
    told = {"prompt": prompt, "env": dict(os.environ), "cwd": str(Path.cwd())}
    (HERE / "seen" / f"{number}.{role}.{agent}.{turn}").write_text(json.dumps(told))
    return turn


def chosen(known):
    for rule in json.loads((HERE / "script.json").read_text()):
        if all(rule[name] == value for name, value in known.items() if name in rule):
            return rule
    return {}


def run_away(kind):
    """Start a child that does all to outlive its parent."""
    if os.fork():
        return
    os.close(1)
    os.close(2)
    if kind in ("setsid", "daemon"):
        os.setsid()
    if kind == "daemon" and os.fork():
        os._exit(0)
    if kind in ("deaf", "daemon"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def beat():
    with (HERE / "seen" / "beats").open("w", buffering=1) as file:
        while not (HERE / "seen" / "enough").exists():
            file.write(f"{time.monotonic_ns()}\n")
            time.sleep(0.005)


def edit(rule):
    edits = rule.get("edit")
    if edits is None and "remove" not in rule:
        plan = json.loads(Path(os.environ["SID_PLAN_FILE"]).read_text())
        edits = {step["file"]: step["change"] + "\n" for step in plan["steps"]}
    for name, text in (edits or {}).items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    for name in rule.get("remove", ()):
        Path(name).unlink()


def brief(agent, number, rule):
    idea = {"source": "the code", "evidence": "it is small", "confidence": "high", "estimated_impact": "10"}
    ideas = [{"title": f"Raise it by {n}", "approach_family": FAMILIES[n], **idea} for n in range(3)]
    return {"repo_analysis_summary": "One number.", "ideas": ideas}


def plan(agent, number, rule):
    mine = ord(agent[-1]) - ord("a")
    value = rule.get("value", 10 * number - mine)
    file = rule.get("file", "value.txt")
    change = rule.get("change", str(value))
    return {
        "hypothesis": rule.get("hypothesis", f"Set the value to {value}: it counts directly"),
        "approach_family": rule.get("family", FAMILIES[(number + mine) % len(FAMILIES)]),
        "target_files": [file],
        "steps": [{"step": 1, "file": file, "change": change}],
        "expected_outcome": {"metric": "primary", "estimated_impact": "+10", "rationale": "it is the score"},
        "history_reference": {"builds_on": "none", "avoids": "none"},
    }


def advice(agent, number, rule):
    return {"verdict": "approve", "feedback": "Do it.", "structural_concerns": []}


def judgement(agent, number, rule):
    points = (
        "h001_hypothesis_count",
        "h002_family_streak",
        "h003_intra_round_diversity",
        "schema_valid",
        "history_aware",
    )
    return {**dict.fromkeys(points, "pass"), "verdict": "approved", "rejection_reason": None}


def summary(agent, number, rule):
    return "done as planned"


ANSWERS = {
    "researcher": brief,
    "planner": plan,
    "architect": advice,
    "critic": judgement,
    "executor": summary,
}

main()
