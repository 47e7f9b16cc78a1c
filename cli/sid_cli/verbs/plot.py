"""`sictl plot`: the step chart with every candidate."""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path

import click

from sid_cli import places
from sid_cli.options import completed, run_argument, topic_option, verb
from sid_cli.session import Session
from sid_cli.text import clean
from sid_protocol.errors import SidError, UsageError

FORMATS = ("png", "svg")
_DRAW_S = 120.0


def format_of(path: str) -> str:
    """Return the format that a file's name asks for.

    Raises:
        UsageError: it is neither PNG nor SVG.
    """
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise UsageError(f"cannot draw {path!r}", hint="give a file that ends in .png or .svg")
    return suffix


@verb("plot", example="sictl plot\nsictl plot -o progress.svg")
@run_argument
@topic_option
@click.option(
    "-o",
    "--output",
    metavar="FILE.png|svg",
    shell_complete=completed("file"),
    help="Where to write it.  [default: sid-RUN.png here]",
)
def command(session: Session, run: str | None, topic: str | None, output: str | None) -> None:
    """Draw the step chart; the best score so far, with every candidate."""
    form = format_of(output) if output is not None else "png"
    with session.daemon(spawn=True) as client:
        run_id = session.row(client, run, topic)["run_id"]
        result = client.call("run.plot", {"run": run_id, "format": form}, timeout_s=_DRAW_S)
    path = Path(places.absolute(output if output is not None else f"sid-{run_id}.{form}"))
    write_whole(path, base64.b64decode(result["data"]))
    session.console.result({"run_id": run_id, "path": str(path), "format": form}, clean(path))


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it appears whole or not at all.

    Raises:
        SidError: it cannot be written there.
    """
    try:
        descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            Path(beside).chmod(0o644)
            Path(beside).replace(path)
        except OSError:
            Path(beside).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SidError(f"cannot write {path}: {error.strerror}", hint="say where with -o FILE") from None
