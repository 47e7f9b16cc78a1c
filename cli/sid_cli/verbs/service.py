"""`sictl service`: the daemon as systemd user units, put in place, taken away, looked at."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import click

from sid_cli import places, units
from sid_cli.client import Client
from sid_cli.options import verb
from sid_cli.session import Session
from sid_cli.spawn import daemon_command
from sid_cli.text import clean
from sid_protocol.errors import NoDaemon, Refused, SidError, UsageError
from sid_protocol.locations import socket_path

_LIMIT_S = 60
_SHOWN = ("Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "StatusText")
_NO_MANAGER = "log in as this user (not through su or sudo), or start one: sudo loginctl enable-linger {user}"


@verb("service", example="sictl service install\nsictl service status")
@click.argument("action", type=click.Choice(("install", "uninstall", "status")))
@click.option("--dry-run", is_flag=True, help="Print what would be written, and change nothing.")
def command(session: Session, *, action: str, dry_run: bool) -> None:
    """Run the daemon as a systemd user service; the first sictl starts it, and a crash or hang restarts it."""
    folder = units.unit_folder(os.environ, places.home())
    if dry_run and action != "install":
        raise UsageError(
            f"--dry-run is for install, not {action}", hint="sictl service install --dry-run shows the units"
        )
    if action == "install":
        _install(session, folder, dry_run=dry_run)
    elif action == "uninstall":
        _uninstall(session, folder)
    else:
        _status(session, folder)


def _install(session: Session, folder: Path, *, dry_run: bool) -> None:
    home = places.home()
    files = units.unit_files(folder, _absolute_command(), os.environ.get("PATH", ""), home)
    listed = [{"path": str(file.path), "text": file.text} for file in files]
    if dry_run:
        text = "\n".join(f"# {file.path}\n{file.text}" for file in files).rstrip("\n")
        session.console.result({"files": listed, "installed": False}, text)
        return
    _check_manager()
    was_running = _units()[units.SERVICE]["ActiveState"] in ("active", "activating", "reloading")
    if not was_running:
        _refuse_beside_another()
    for file in files:
        _write(file)
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", units.SOCKET)
    lines = [f"wrote {clean(str(file.path))}" for file in files]
    lines.append(f"{units.SOCKET} listens; the first sictl starts the daemon")
    lines += _advice(restart=was_running)
    session.console.result({"files": listed, "installed": True, "linger": _lingers()}, "\n".join(lines))


def _advice(*, restart: bool) -> list[str]:
    lines = []
    if restart:
        lines.append(
            "the daemon that runs is the one from before; to change over: systemctl --user restart sid.service"
        )
    wanted = socket_path({"XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR", "")}, places.home())
    if places.own_socket(None) != wanted:
        lines.append(f"! SID_SOCKET is set here, but the service listens on {clean(wanted)}: unset it")
    if not _lingers():
        lines.append(
            f"runs end when you log out; to let them go on: sudo loginctl enable-linger {clean(_user())}"
        )
    lines.append("to go on with runs right after a reboot: systemctl --user enable sid.service")
    lines.append("records: journalctl --user -u sid -f, or sictl attach")
    return lines


def _uninstall(session: Session, folder: Path) -> None:
    files = [*(folder / name for name in units.NAMES), units.drop_in(folder)]
    present = [file for file in files if file.exists()]
    if not present:
        session.console.result({"removed": []}, "the service is not installed")
        return
    _check_manager()
    _systemctl("disable", "--now", units.SOCKET, units.SERVICE)
    for file in present:
        file.unlink()
    own = units.drop_in(folder).parent
    if own.is_dir() and not any(own.iterdir()):
        own.rmdir()
    _systemctl("daemon-reload")
    lines = [f"removed {clean(str(file))}" for file in present]
    lines.append("runs and settings stay; the next 'sictl start' starts a daemon by itself")
    session.console.result({"removed": [str(file) for file in present]}, "\n".join(lines))


def _status(session: Session, folder: Path) -> None:
    _check_manager()
    found = _units()
    installed = all((folder / name).exists() for name in units.NAMES)
    rows = [found[units.SOCKET], found[units.SERVICE]]
    lines = [_row(row) for row in rows]
    if not installed:
        lines.append("not installed: 'sictl service install' puts it in place")
    lines.append("linger: on" if _lingers() else "linger: off, runs end when you log out")
    shown = {"installed": installed, "linger": _lingers(), "units": rows}
    session.console.result({"service": shown}, "\n".join(lines))


def _row(row: dict[str, str]) -> str:
    if row["LoadState"] == "not-found":
        return f"{row['Id']:12} not found"
    parts = [f"{row['ActiveState']} ({row['SubState']})", row["UnitFileState"] or "not enabled"]
    if row.get("MainPID", "0") != "0":
        parts.append(f"pid {row['MainPID']}")
    if row.get("NRestarts", "0") != "0":
        parts.append(f"restarted {row['NRestarts']} times")
    if row.get("StatusText"):
        parts.append(clean(row["StatusText"]))
    return f"{row['Id']:12} {', '.join(parts)}"


def _absolute_command() -> list[str]:
    program, *rest = daemon_command()
    return [places.absolute(program), *rest]


def _refuse_beside_another() -> None:
    """Refuse while a daemon that systemd did not start answers: the new socket would hide it."""
    try:
        with Client(places.own_socket(None)) as client:
            pid = client.call("daemon.info")["pid"]
    except NoDaemon:
        return
    raise Refused(
        f"a daemon that systemd did not start is running (pid {pid})",
        hint="end it first, its runs go on later: sictl daemon shutdown",
    )


def _write(file: units.UnitFile) -> None:
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        beside = file.path.with_name(f".{file.path.name}.new")
        beside.write_text(file.text, encoding="utf-8")
        beside.replace(file.path)
    except OSError as error:
        raise SidError(
            f"cannot write {file.path}: {error.strerror}",
            hint="check the folder's permissions and the free space",
        ) from None


def _check_manager() -> None:
    """See that there is a systemd of this user to talk to."""
    if shutil.which("systemctl") is None:
        raise SidError(
            "there is no systemctl on PATH",
            hint="without systemd nothing needs installing: 'sictl start' starts a daemon by itself",
        )
    done = _run("show", "--property=Version")
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
        raise SidError(f"no systemd user manager answers: {said}", hint=_NO_MANAGER.format(user=_user()))


def _units() -> dict[str, dict[str, str]]:
    done = _systemctl("show", f"--property={','.join(_SHOWN)}", *units.NAMES)
    rows = {
        name: {"Id": name, "LoadState": "not-found", "ActiveState": "inactive"} | {"SubState": "dead"}
        for name in units.NAMES
    }
    for block in done.split("\n\n"):
        row = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        if row.get("Id") in rows:
            rows[row["Id"]] |= row
    return rows


def _systemctl(*args: str) -> str:
    done = _run(*args)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise SidError(
            f"systemctl --user {args[0]} failed: {said}", hint="see journalctl --user -u sid -n 50"
        )
    return done.stdout


def _run(*args: str) -> subprocess.CompletedProcess[str]:
    argv = ["systemctl", "--user", "--no-pager", *args]
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise SidError(
            f"systemctl --user {args[0]} did not end within {_LIMIT_S} s",
            hint="see systemctl --user list-jobs",
        ) from None


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _lingers() -> bool:
    return Path("/var/lib/systemd/linger", _user()).exists()
