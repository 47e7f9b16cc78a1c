"""`sictl doctor`: what this machine offers, each problem with its fix."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from sid_cli.options import verb
from sid_cli.session import Session
from sid_cli.spawn import daemon_command
from sid_cli.text import clean
from sid_protocol.errors import SidError

DEADLINE_S = 60


@verb("doctor", example="sictl doctor")
def command(session: Session) -> None:
    """Check git, sandbox, disk, service and noise; changes nothing, and exits with 1 on a FAIL."""
    checks = _examine()
    lines = []
    for check in checks:
        lines.append(f"{check['verdict']:<5} {check['id']:<13} {clean(check['found'])}")
        if check["mend"]:
            lines.append(f"{'':<20}{session.console.marks.arrow} {clean(check['mend'])}")
    session.exit_code = 1 if any(check["verdict"] == "FAIL" for check in checks) else 0
    session.console.result({"checks": checks}, "\n".join(lines))


def _examine() -> list[dict[str, Any]]:
    try:
        done = subprocess.run(
            [*daemon_command(), "--doctor"],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=DEADLINE_S,
        )
        checks: list[dict[str, Any]] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise SidError(
            f"the daemon's executable cannot be asked: {error}", hint="install sid beside sictl"
        ) from None
    return checks
