"""`sictl calibrate`: measure the benchmark's noise again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sid_cli.options import run_argument, topic_option, verb
from sid_cli.session import Session
from sid_cli.text import clean, duration, exact


@verb("calibrate", example="sictl calibrate")
@run_argument
@topic_option
def command(session: Session, run: str | None, topic: str | None) -> None:
    """Measure the benchmark's noise again, on the improvement branch; not while the run is active."""
    session.interrupt_note = "nothing was changed"
    with session.daemon(spawn=True) as client:
        found = session.call_run(client, "run.calibrate", run, topic, timeout_s=None)
    session.console.result({"calibration": found}, told(found))


def told(found: Mapping[str, Any]) -> str:
    """Return what a calibration found, a few lines."""
    samples = ", ".join(exact(score) for score in found["samples"])
    lines = [
        f"{clean(found['run_id'])}: {clean(found['mode'])}, best score {exact(found['score'])}",
        f"  {len(found['samples'])} runs of {duration(found['run_s'])}: {samples} (spread {found['spread_pct']:g} %)",
        *(f"  {clean(note)}" for note in found["notes"]),
    ]
    return "\n".join(lines)
