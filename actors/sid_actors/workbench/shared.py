"""What a checkout has besides its tracked files: the result of `setup_command`, and the paths that the user shares.

`LocalBench` and `LocalWorkbench` ask it for every checkout they fill; the set-up gate asks `check_paths` before. The
set-up runs once for each digest of its command and the lock files of the tree, in a clean checkout; what it
created stays in `<root>/setup/<digest>/` and is shown read-only. Tracked files of that checkout are removed, so that
nothing can run old code by mistake. In a sandbox every checkout also stands at the one path where the set-up ran,
since virtual environments and editable installations hold absolute paths.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from sid_actors.git.repository import RepoInfo
from sid_actors.jobs.job import JobResult, JobSpec, JobStartError, Mount
from sid_actors.jobs.limits import blame, limits_of
from sid_actors.jobs.overload import room_in
from sid_actors.jobs.process import run_job
from sid_actors.workbench.checkouts import bulk
from sid_actors.workbench.checkouts.pool import PlainCheckout
from sid_actors.workbench.machine import MachineLock
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_actors.workbench.sandbox.toolchain import find_toolchain, venv_prefix
from sid_actors.workbench.setup_store import (
    SetupFailed,
    digest_of,
    drop,
    keep_results,
    results_of,
    take_oldest,
)
from sid_protocol.errors import BenchmarkError, SettingsInvalid
from sid_protocol.settings import Settings

_OUTPUT_CHARACTERS = 2000
_PASSED = ("LANG", "USER", "TERM")
_PASSED_NETWORK = (
    *(
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
    ),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
)
_locks: weakref.WeakValueDictionary[str, trio.Lock] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a set-up created: paths relative to the checkout, kept in `store`."""

    store: str
    results: tuple[str, ...]

    def mounts(self, folder: str) -> list[Mount]:
        """Return them as what is shown in a checkout."""
        return [Mount(f"{folder}/{path}", source=f"{self.store}/{path}") for path in self.results]


class Shared:
    """What the checkouts of one track are given.

    Args:
        info: The repository.
        root: The track's root; results of the set-up lie in it.
        lock: The machine's lock: a set-up would disturb a benchmark.
        sandboxed: Whether bubblewrap works here; `settings.sandbox` can still turn it off.
    """

    def __init__(self, info: RepoInfo, root: str, *, lock: MachineLock, sandboxed: bool) -> None:
        self._info = info
        self._root = root
        self._lock = lock
        self._sandboxed = sandboxed

    async def prepare(self, tree: str, settings: Settings) -> Prepared:
        """Run the set-up for a commit or a tree, unless its result is there; never call it holding the lock.

        Raises:
            SetupFailed: `setup_command` failed.
            GitError: the checkout for the set-up failed.
        """
        if not settings.setup_command:
            return Prepared("", ())
        contained = self.is_contained(settings)
        words = ("sandbox" if contained else "plain", self._path_of_setup)
        digest = await trio.to_thread.run_sync(
            digest_of, self._info.common_dir, tree, settings.setup_command, words
        )
        store = f"{self._root}/setup/{digest}"
        async with _locks.setdefault(store, trio.Lock()):
            results = await trio.to_thread.run_sync(results_of, store)
            if results is None:
                async with self._lock.held():
                    results = await self._set_up(store, tree, settings.setup_command, settings)
                for old in await trio.to_thread.run_sync(take_oldest, f"{self._root}/setup"):
                    await bulk.delete(old)
        return Prepared(store, tuple(results))

    async def show(
        self, folder: str, prepared: Prepared, settings: Settings, *, benchmark: bool, seen: str = ""
    ) -> tuple[Mount, ...]:
        """Make room in a checkout for what is shown there; without a sandbox, link it.

        Args:
            folder: The checkout, just filled.
            prepared: The result of the set-up for what it holds.
            settings: Of the current round.
            benchmark: Whether `benchmark_paths` are shown, too.
            seen: Where a sandbox shows the checkout, if that is elsewhere.

        Returns:
            What a sandbox must show.

        Raises:
            BenchmarkError: a shared path leads out of the checkout.
        """
        paths = [*settings.share_paths, *(settings.benchmark_paths if benchmark else ())]
        inside = [*prepared.mounts(folder), *user_mounts(self._info.top, folder, paths)]
        if not self.is_contained(settings):
            await trio.to_thread.run_sync(_link, folder, inside)
            return tuple(inside)
        if not inside and not prepared.store:
            return ()
        await trio.to_thread.run_sync(_make_room, folder, inside)
        at, seen = self._path_of_setup, seen or folder
        shown = [*prepared.mounts(seen), *user_mounts(self._info.top, seen, paths)]
        if prepared.store and seen != at:
            shown += [Mount(at, source=folder), *prepared.mounts(at)]
        homes = await trio.to_thread.run_sync(_interpreters, shown)
        return (*shown, *(Mount(path) for path in homes))

    async def same_setup(self, one: str, other: str, command: str) -> bool:
        """Say whether two commits or trees have the same lock files and scripts, and so the same set-up."""
        digests = [
            await trio.to_thread.run_sync(digest_of, self._info.common_dir, tree, command)
            for tree in (one, other)
        ]
        return digests[0] == digests[1]

    @property
    def _path_of_setup(self) -> str:
        return f"{self._root}/pool/bench"

    def is_contained(self, settings: Settings) -> bool:
        """Say whether jobs are in sandboxes."""
        return self._sandboxed and settings.sandbox != "off"

    async def _set_up(self, store: str, tree: str, command: str, settings: Settings) -> list[str]:
        checkout = PlainCheckout(self._info.common_dir, store)
        try:
            await checkout.fill(tree)
            job = await self._job(store, command, settings)
            result = await _run(job)
            if result.exit_code != 0 or result.timed_out:
                raise _failure(command, result, job)
            return await trio.to_thread.run_sync(keep_results, self._info.common_dir, store, tree)
        except BaseException:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(drop, store)
            raise

    async def _job(self, store: str, command: str, settings: Settings) -> JobSpec:
        home, path = os.environ.get("HOME", "/"), os.environ.get("PATH", os.defpath)
        folder, sandbox = store, None
        if self.is_contained(settings):
            tools = await trio.to_thread.run_sync(lambda: find_toolchain(path, home=home))
            path, folder = tools.path, self._path_of_setup
            # Relative ones would be taken for what the set-up created; absolute ones are a registry's settings.
            shared = [item for item in settings.share_paths if Path(item.removesuffix(":rw")).is_absolute()]
            sandbox = Sandbox(
                workdir=folder,
                writable=(),
                readable=tools.readable,
                sealed=(),
                network=settings.setup_network,
                home=home,
                mounts=(
                    Mount(folder, writable=True, source=store),
                    *user_mounts(self._info.top, folder, shared),
                ),
            )
        names = (*_PASSED, *(_PASSED_NETWORK if settings.setup_network else ()))
        kept = {name: value for name in names if (value := os.environ.get(name))}
        return JobSpec(
            argv=("/bin/sh", "-c", command),
            cwd=folder,
            env={**kept, "HOME": home, "PATH": path, "GIT_CEILING_DIRECTORIES": str(Path(folder).parent)},
            deadline_s=settings.deadlines.setup,
            merge_stderr=True,
            limits=limits_of(settings.limits, output_mb=1),
            sandbox=sandbox,
            room=room_in(store, settings.limits),
        )


def user_mounts(top: str, folder: str, paths: Sequence[str]) -> list[Mount]:
    """Return what `share_paths` and `benchmark_paths` show: relative ones at the same place in a checkout.

    Raises:
        BenchmarkError: a relative path leads out of the repository.
    """
    found = []
    for item in paths:
        path = Path(item.removesuffix(":rw"))
        source = os.path.normpath(Path(top, path))
        shown = source if path.is_absolute() else os.path.normpath(Path(folder, path))
        if not path.is_absolute() and not shown.startswith(f"{folder}/"):
            raise BenchmarkError(f"shared path {item} leads out of the repository", hint="give it absolute")
        found.append(Mount(shown, writable=item.endswith(":rw"), source=source))
    return found


def check_paths(settings: Settings, top: str, tracked: Iterable[str], home: str) -> None:
    """Refuse paths that cannot be shown, or that would show another code than the measured one; blocks shortly.

    Args:
        settings: The run's settings.
        top: The repository's top.
        tracked: The tracked files of the target branch.
        home: HOME.

    Raises:
        SettingsInvalid: naming the key and the path.
    """
    known = set(tracked)
    folders = {str(parent) for path in known for parent in Path(path).parents}
    for key in ("share_paths", "benchmark_paths", "agent_paths"):
        for item in getattr(settings, key):
            name = item.removesuffix(":rw").removesuffix(":ro")
            if name.startswith("~/") and key == "agent_paths":
                name = f"{home}/{name[2:]}"
            full = os.path.normpath(Path(top, name))
            relative = os.path.relpath(full, top)
            if not Path(name).is_absolute() and (relative == ".." or relative.startswith("../")):
                raise SettingsInvalid(key, f"{item} leads out of the repository", hint="give it absolute")
            if not os.path.lexists(full):
                raise SettingsInvalid(key, f"{item} does not exist", hint="make it first, or take it out")
            if key != "agent_paths" and (relative in known or relative in folders):
                raise SettingsInvalid(
                    key,
                    f"{item} holds tracked files, which every checkout has of its own",
                    hint="take it out",
                )
            if item.endswith(":rw") and any(Path(kept).is_relative_to(full) for kept in (home, top)):
                raise SettingsInvalid(
                    key, f"{item} would let a job write everywhere", hint="name a folder in it"
                )


def _interpreters(shown: Iterable[Mount]) -> list[str]:
    home = os.environ.get("HOME", "/")
    return [path for mount in shown for path in venv_prefix(mount.source or mount.path, home)]


def _make_room(folder: str, shown: Iterable[Mount]) -> None:
    """Make the mount points in a checkout: where it is read-only in a sandbox, nobody else can."""
    for mount in shown:
        if mount.path.startswith(f"{folder}/") and mount.source and Path(mount.source).exists():
            point = _point(folder, mount.path)
            if Path(mount.source).is_dir():
                point.mkdir(parents=True, exist_ok=True)
            elif not os.path.lexists(point):
                point.parent.mkdir(parents=True, exist_ok=True)
                point.touch()


def _link(folder: str, shown: Iterable[Mount]) -> None:
    """Without a sandbox, show paths by symbolic links."""
    for mount in shown:
        if mount.source and mount.source != mount.path and Path(mount.source).exists():
            point = _point(folder, mount.path)
            point.parent.mkdir(parents=True, exist_ok=True)
            if not os.path.lexists(point):
                point.symlink_to(mount.source)


def _point(folder: str, path: str) -> Path:
    """Return where something is shown; a link on the way, which a candidate may have committed, goes."""
    at = Path(folder)
    for part in Path(path).relative_to(folder).parts:
        at /= part
        if at.is_symlink():
            at.unlink()
    return at


def _failure(command: str, result: JobResult, job: JobSpec) -> SetupFailed:
    said = result.stdout.text().strip()[-_OUTPUT_CHARACTERS:]
    last = " | ".join(said.splitlines()[-5:])
    limit = blame(result, job.limits)
    if result.over is not None:
        why = f"was ended ({limit})"
    elif result.timed_out:
        why = f"did not end within {job.deadline_s:g} s"
    else:
        why = f"failed with exit status {result.exit_code}{f' ({limit})' if limit else ''}"
    words = f": {last}" if last else ""
    return SetupFailed(f"setup_command {why}{words}", hint=f"make it work in a fresh clone first: {command}")


async def _run(job: JobSpec) -> JobResult:
    try:
        return await run_job(job)
    except JobStartError as error:
        raise SetupFailed(f"setup_command could not be started: {error.message}", hint=error.hint) from error
