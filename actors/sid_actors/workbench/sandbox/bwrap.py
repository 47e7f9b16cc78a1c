"""The bubblewrap sandbox: what a job may see and write, as an argument list.

The workbench and the actors make a `Sandbox` for an agent (its worktree writable, sealed files and git's own
read-only) or a benchmark (a clean checkout) and hand it to `process.run_job`, which starts what `bwrap_argv`
says. Nothing here starts anything. The recipe is closed against attacks
that were tried: as root a bind can be unmounted unless all capabilities are dropped, a sealed file falls with
its renamed parent unless each folder above it is bound onto itself, a nested user namespace can mount over it.
A symbolic link cannot be sealed so; the comparison with the trusted content afterwards is what sees that.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sid_actors.jobs.job import Mount
from sid_actors.workbench.sandbox.etc import etc_flags

# Programs and libraries; the last two are where NixOS and Guix keep everything.
SYSTEM_DIRS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
RUN_MB = 64  # pid files and sockets


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What a job may see; everything else of the machine is absent. All paths are absolute.

    Args:
        workdir: The working directory, inside `writable`, `readable` or `mounts`.
        writable: Folders and files that it may change.
        readable: What it may read; what is missing on the host is left out.
        sealed: Files and folders inside a writable folder that stay as they are; they must exist.
        network: Whether the host's network is there; if not, only a loopback of its own is.
        home: Its HOME, an empty private folder.
        mounts: More paths, or such that stand elsewhere on the host.
    """

    workdir: str
    writable: tuple[str, ...]
    readable: tuple[str, ...]
    sealed: tuple[str, ...]
    network: bool
    home: str
    mounts: tuple[Mount, ...] = ()

    def bwrap_argv(
        self, env: Mapping[str, str], *, info_fd: int | None, scratch_mb: int | None = None
    ) -> list[str]:
        """Return the command line of bubblewrap, up to and including the `--` before the job's own.

        Args:
            env: The whole environment of the job.
            info_fd: Where bubblewrap tells the id of the namespace's init, if anywhere.
            scratch_mb: How much each private folder may hold, which is memory, in MiB; None: half of the machine's.
        """
        return [
            bwrap_path(),
            "--unshare-all",
            *(["--share-net"] if self.network else []),
            *(
                "--unshare-user",
                "--disable-userns",
                "--cap-drop",
                "ALL",
                "--die-with-parent",
                "--new-session",
            ),
            *([] if info_fd is None else ["--info-fd", str(info_fd)]),
            "--clearenv",
            *(word for name, value in env.items() for word in ("--setenv", name, value)),
            *system_flags(),
            *etc_flags(network=self.network, apart=any(_is_below(path, "/etc") for path in _mounts(self))),
            # Root needs no capability to write what is below /proc/sys: a program for core dumps would run outside.
            *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"),
            *(word for folder in self._private for word in _tmpfs(folder, scratch_mb)),
            *(word for bind in _binds(self) for word in bind),
            # Else both are private folders without a limit.
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", self.workdir, "--"),
        ]

    @property
    def _private(self) -> tuple[str, ...]:
        """The job's own folders, made empty."""
        own = ("/tmp", "/run", "/dev/shm")  # noqa: S108 -- not the host's
        return (*own, self.home) if self.home != "/" else own


def _tmpfs(folder: str, scratch_mb: int | None) -> tuple[str, ...]:
    most = scratch_mb if folder != "/run" or scratch_mb is None else min(scratch_mb, RUN_MB)
    size = () if most is None else ("--size", str(most << 20))
    return (*size, "--tmpfs", folder)


def bwrap_path() -> str:
    """Return where bubblewrap is, or where it would be if it were installed."""
    return shutil.which("bwrap") or "/usr/bin/bwrap"


@functools.cache
def system_flags() -> tuple[str, ...]:
    """Return the flags for the read-only system, in the shape that this host has; looks at `/` once."""
    flags: list[str] = []
    for directory in map(Path, SYSTEM_DIRS):
        if directory.is_symlink():  # as Debian has /bin -> usr/bin
            flags += ["--symlink", str(directory.readlink()), str(directory)]
        elif directory.is_dir():
            flags += ["--ro-bind", str(directory), str(directory)]
    return tuple(flags)


def _binds(sandbox: Sandbox) -> Iterator[tuple[str, str, str]]:
    """Yield the binds, parents first, so that what is deeper wins.

    Between a writable folder and a read-only path in it, each folder is bound onto itself: a mount point cannot
    be renamed, and with it neither can the way to what is read-only.
    """
    done: dict[str, Mount] = {}
    for path, mount in sorted(_mounts(sandbox).items()):
        above = next((done[folder] for folder in _folders_above(path) if folder in done), None)
        source = mount.source or _source_below(above, path)
        done[path] = Mount(path, mount.writable, source)
        if mount.writable:
            yield "--bind", source, path
            continue
        if above and not above.writable and not mount.source:
            continue  # read-only already, as part of it
        must_exist = "" if mount.path in sandbox.sealed else "-try"
        if above and above.writable:
            for folder in reversed([one for one in _folders_above(path) if _is_below(one, above.path)]):
                yield f"--bind{must_exist}", _source_below(above, folder), folder
        yield f"--ro-bind{must_exist}", source, path


def _mounts(sandbox: Sandbox) -> dict[str, Mount]:
    """Return what is asked for, by path; of a path named twice the later kind counts, so a seal always does."""
    asked = [
        *(Mount(path) for path in sandbox.readable),
        *sandbox.mounts,
        *(Mount(path, writable=True) for path in sandbox.writable),
        *(Mount(path) for path in sandbox.sealed),
    ]
    return {os.path.normpath(mount.path): mount for mount in asked}


def _source_below(above: Mount | None, path: str) -> str:
    """Return the host's path of what is below a mount, or of what stands alone."""
    if above is None or above.source is None:
        return path
    return f"{above.source.rstrip('/')}/{os.path.relpath(path, above.path)}"


def _folders_above(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, the deepest first."""
    while path != (path := os.path.dirname(path)):  # noqa: PTH120 -- made for every job: paths as objects cost ten times that
        yield path


def _is_below(path: str, folder: str) -> bool:
    return path != folder and path.startswith(folder.rstrip("/") + "/")
