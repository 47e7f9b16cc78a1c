"""Whether a sandbox can be made on this machine, found out by making one; and what to do where it cannot.

Asked at the daemon's start, by set-up and by `sictl doctor`. What it runs is `true`.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import trio

from sid_actors.jobs import scratch
from sid_actors.workbench.sandbox.bwrap import RUN_MB, Sandbox

_PROBE_LIMIT_S = 20.0


async def probe_bwrap() -> str | None:
    """Try whether a sandbox with the whole recipe can be made here, by making one; the caller keeps the answer.

    Returns:
        None where it works, else the reason and what to do, in one line.
    """
    return await trio.to_thread.run_sync(_probe)


def _probe() -> str | None:
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed; apt-get install bubblewrap"
    with contextlib.ExitStack() as stack:
        folder = scratch.make("probe")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        sealed = Path(folder, "sealed")
        sealed.touch()
        sandbox = Sandbox(
            workdir=folder,
            writable=(folder,),
            readable=(),
            sealed=(str(sealed),),
            network=False,
            home="/home/sid",
        )
        bwrap, *words = sandbox.bwrap_argv({"PATH": "/usr/bin:/bin"}, info_fd=None, scratch_mb=RUN_MB)
        # Without an init of its own, which would be left to us to reap where we adopt orphans.
        argv = [bwrap, "--as-pid-1", *words, "true"]
        try:
            done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=_PROBE_LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"bubblewrap does not answer within {_PROBE_LIMIT_S:.0f} s; try: bwrap --ro-bind / / true"
    if done.returncode == 0:
        return None
    said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
    return f"{said}; {_hint(said, _namespace_settings())}"


def _namespace_settings() -> dict[str, str]:
    names = ("kernel/apparmor_restrict_unprivileged_userns", "kernel/unprivileged_userns_clone")
    paths = [Path("/proc/sys", name) for name in (*names, "user/max_user_namespaces")]
    return {path.name: path.read_text().strip() for path in paths if path.exists()}


def _hint(said: str, settings: Mapping[str, str]) -> str:
    """Say what mends a failed probe, from what bubblewrap said and what the kernel allows."""
    if "nknown option" in said:
        return "bubblewrap 0.8 or newer is needed; apt-get install bubblewrap"
    if settings.get("max_user_namespaces") == "0":
        return "sysctl -w user.max_user_namespaces=10000"
    if settings.get("unprivileged_userns_clone") == "0":
        return "sysctl -w kernel.unprivileged_userns_clone=1"
    if settings.get("apparmor_restrict_unprivileged_userns") == "1":
        return "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap"
    return "user namespaces are not allowed here (a container without them?)"
