"""`sictl daemon`: the daemon itself."""

from __future__ import annotations

import os
import select

import click

from sid_cli.options import verb
from sid_cli.runs import is_active
from sid_cli.session import Session
from sid_cli.text import clean, duration
from sid_protocol import __version__
from sid_protocol.errors import Refused

LEAVING_S = 15.0
"""A daemon suspends its runs within 10 s."""


@verb("daemon", example="sictl daemon status\nsictl daemon shutdown --yes")
@click.argument("action", type=click.Choice(("status", "shutdown")))
@click.option("--now", is_flag=True, help="Shut down within 1 s, without a grace period.")
@click.option("--yes", is_flag=True, help="Do not ask, even if runs are active.")
def command(session: Session, *, action: str, now: bool, yes: bool) -> None:
    """Show the daemon or shut it down; active runs stop safely and resume at its next start."""
    if action == "status":
        _status(session)
    else:
        _shutdown(session, now=now, yes=yes)


def _status(session: Session) -> None:
    with session.daemon(spawn=False) as client:
        info = client.call("daemon.info")
    lines = [
        f"sid {clean(info['version'])}, pid {info['pid']}, up {duration(info['uptime_s'])}, active runs: {info['runs']}",
        f"socket {clean(info.get('socket') or session.socket_path)}",
    ]
    if info.get("state_dir"):
        lines.append(f"state  {clean(info['state_dir'])}")
    if __version__ != info["version"]:
        lines.append(
            f"! sictl is {__version__}: 'sictl daemon shutdown' and any 'sictl start' bring the new daemon; no round is lost"
        )
    session.console.result({**info, "daemon": info}, "\n".join(lines))


def _shutdown(session: Session, *, now: bool, yes: bool) -> None:
    console = session.console
    with session.daemon(spawn=False) as client:
        active = [row for row in client.call("run.list")["runs"] if is_active(row)]
        if active and not yes and console.may_ask:
            listed = ", ".join(clean(row["run_id"]) for row in active)
            console.note(f"active: {listed}; they stop now and go on when the daemon starts again")
            if not console.confirm("Shut the daemon down?"):
                raise Refused("not shut down", hint="'sictl daemon shutdown --yes' does not ask")
        try:
            process = os.pidfd_open(client.call("daemon.info")["pid"])
        except ProcessLookupError:
            process = None  # it lives among processes that are not ours to see
        client.call("daemon.shutdown", {"now": now})
    told = "the daemon has shut down"
    if process is not None:
        if not select.select([process], [], [], LEAVING_S)[0]:
            told = "the daemon is still shutting down; 'sictl daemon status' shows when it is gone"
        os.close(process)
    console.result({"stopped_runs": [row["run_id"] for row in active]}, told)
