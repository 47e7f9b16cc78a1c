"""`sictl apply`: move the target branch to the improvements."""

from __future__ import annotations

from typing import Any

import click

from sid_cli.options import run_argument, topic_option, verb
from sid_cli.session import Session
from sid_cli.text import clean, clean_lines
from sid_cli.verbs.diff import show
from sid_protocol.errors import Refused, UsageError


@verb("apply", example="sictl apply\nsictl apply --dry-run\nsictl apply --yes")
@run_argument
@topic_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be done and do nothing.")
def command(session: Session, *, run: str | None, topic: str | None, yes: bool, dry_run: bool) -> None:
    """Apply the improvements: shows the diff, asks, moves the target branch, prints the undo command."""
    console = session.console
    if not (yes or dry_run or console.may_ask):
        raise UsageError(
            "apply asks before it moves a branch, and nobody is there to answer", hint="add --yes"
        )
    with session.daemon(spawn=True) as client:
        run_id = session.row(client, run, topic)["run_id"]
        plan = client.call("run.apply", {"run": run_id, "confirm": False})
        if dry_run or not plan["diff"]:
            _tell(session, run_id, plan)
            return
        if not session.as_json:
            show(plan["diff"], console, paged=not yes)
        if not yes:
            console.note(f"{clean_lines(plan['stat'])}\n{_effect(plan)}")
            if not console.confirm("Apply it?"):
                raise Refused("not applied", hint=f"'sictl diff {run_id}' shows it again")
        result = client.call("run.apply", {"run": run_id, "confirm": True}, timeout_s=None)
    _tell(session, run_id, result)


def _effect(plan: dict[str, Any]) -> str:
    how = "by fast-forward" if plan.get("fast_forward") else "by a merge"
    return f"{clean(plan.get('target_branch') or 'the target branch')} would move {how}"


def _tell(session: Session, run_id: str, result: dict[str, Any]) -> None:
    lines = [clean_lines(result["stat"])] if result["stat"] else []
    target = clean(result.get("target_branch") or "the target branch")
    if result["applied"]:
        lines.append(f"{target}: {clean(result['before'])[:12]} to {clean(result['after'])[:12]}")
    elif result["diff"]:
        lines.append(f"{_effect(result)}; nothing is done yet")
    else:
        lines.append(f"nothing to apply: {target} has every improvement")
    if result["applied"] and result["undo"]:
        lines.append(f"undo with: {clean(result['undo'])}")
    session.console.result({"run_id": run_id, **result}, "\n".join(lines))
