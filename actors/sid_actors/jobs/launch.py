"""How a job's first process is started, held before its first instruction, limited, and let go.

`process.run_job` alone uses this. Why it is done so:

- The first process is a shell that says it is ready with one byte on standard output and waits for one byte on
  standard input: what bubblewrap sets up last, the death signal that ties a sandbox's init to the daemon, is in
  force by then. A daemon that dies before leaves a shell that reads end of file and exits. So the job itself
  inherits no descriptor but its three.
- Bubblewrap tells the id of its init before it lets that go on. It tells a file and not a pipe: a daemon that dies meanwhile
  would be the end of the pipe and of bubblewrap's outer process, and its init would wait for that for ever.
- A sandbox's session is made by bubblewrap, at the end of its set-up. Until then it is in the daemon's, where the kernel
  shares a session's processors out by priority: the event loop goes before the set-up of sixteen agents.
- Open files and file size are resource limits, for each process. Memory and the number of processes are the
  cgroup's where it has the controllers. Else memory is RLIMIT_DATA, for each process (RLIMIT_AS would break what
  reserves address space, such as V8), and the number of processes holds only in a sandbox, where RLIMIT_NPROC
  counts within the sandbox's own user namespace instead of all the user's processes; root is exempt from it.
  What so is not held for a job as a whole, `overload` looks at.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import resource
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import trio

from sid_actors.jobs import procfs, spawner
from sid_actors.jobs.job import JobSpec, JobStartError
from sid_actors.jobs.marks import JOB_VARIABLE, Mark, known_job, starting

# Added to the environment by the shell or bubblewrap, which is to be exactly what the caller said.
_SHELLS_OWN = ("OLDPWD", "PWD", "SHLVL")
_MOST_SAID = 4096  # bytes; bubblewrap tells a dozen numbers


class Launch:
    """The waiting first process of a job and its pipes.

    Args:
        spec: What is to be run.
        mark: What its processes will be known by.
        held: Closes the descriptors when the job is over.
    """

    def __init__(self, spec: JobSpec, mark: Mark, held: contextlib.ExitStack) -> None:
        self._spec = spec
        self._mark = mark
        self._held = held
        self.streams: dict[str, trio.lowlevel.FdStream] = {}
        self._started = held.enter_context(known_job(mark))
        self.pid = self.pidfd = -1
        self.init: int | None = None
        self.init_pidfd: int | None = None
        self._info: int | None = None

    async def start(self, door: Callable[[], str | None]) -> None:
        """Start it.

        Args:
            door: Returns the file by which it enters its cgroup, or None; called where it may block.

        Raises:
            JobStartError: No process could be started.
        """
        spec, mark = self._spec, {JOB_VARIABLE: self._mark.job_id}
        with _told_of(spec), contextlib.ExitStack() as theirs:
            stdin, stdout, stderr = (self._pipe(name, theirs) for name in ("stdin", "stdout", "stderr"))
            info = self._info = self._hold(os.memfd_create("sid-job")) if spec.sandbox else None

            def start() -> int:
                program = spawner.Program(
                    argv=tuple(_command(spec, info and spawner.passed_as(info), door())),
                    env=mark if spec.sandbox else {**spec.env, **mark},
                    cwd=None if spec.sandbox else spec.cwd,
                    streams=(stdin, stdout, stderr),
                    passed=info,
                    session=spec.sandbox is None,
                )
                with starting:
                    pid = spawner.spawn(program)
                    self._started.add(pid)
                    return pid

            self.pid = await spawner.in_thread(start, stands_back=spec.stands_back)
            theirs.close()
            try:
                self.pidfd = self._hold(os.pidfd_open(self.pid))
            except OSError:
                await self._let_end()  # noqa: ASYNC120 - it shields what must be done
                raise

    async def _let_end(self) -> None:
        """Wait for the end of a first process that is never let go: it reads end of file, and what surrounds it ends with it."""
        for stream in self.streams.values():
            stream.close()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._reap, limiter=trio.CapacityLimiter(1))

    def _reap(self) -> None:
        os.waitpid(self.pid, 0)
        # A sandbox's outer process leaves its init to us; there is none where it was not told yet, or was reaped.
        with contextlib.suppress(ValueError, ChildProcessError):
            if self._info is not None:
                os.waitpid(self._init_of(self._info), 0)

    def _pipe(self, name: str, theirs: contextlib.ExitStack) -> int:
        """Make one of its pipes; returns its own end."""
        read, write = os.pipe()
        ours, its = (write, read) if name == "stdin" else (read, write)
        theirs.callback(os.close, its)
        self.streams[name] = trio.lowlevel.FdStream(ours)
        self._held.callback(self.streams[name].close)
        return its

    def _init_of(self, info: int) -> int:
        """Return the id of the sandbox's init; raises `ValueError` where that is not told yet."""
        return int(json.loads(os.pread(info, _MOST_SAID, 0))["child-pid"])

    def _hold(self, fd: int) -> int:
        self._held.callback(os.close, fd)
        return fd

    async def arm(self, enforced: Collection[str]) -> bool:
        """Wait until all is ready, set limits and marks, and let the job go.

        Args:
            enforced: The limits that its cgroup already holds: "memory", "pids".

        Returns:
            Whether the job runs; if not, nothing of it did, and standard error may say why.
        """
        first = self.pid
        if await self.streams["stdout"].receive_some(1) != b"\n":
            return False
        try:
            if self._info is not None:
                self.init = self._init_of(self._info)
                self._started.add(self.init)
                self.init_pidfd = self._hold(os.pidfd_open(self.init))
                (first,) = procfs.children_of(self.init)
            set_limits(first, self._spec, enforced)
            if self._spec.stands_back:
                _stand_back(first)
            self._mark.put_on(first)
            await self.streams["stdin"].send_all(b"\n")
        except (ProcessLookupError, ValueError, trio.BrokenResourceError):  # killed by someone meanwhile
            return False
        return True


@contextlib.contextmanager
def _told_of(spec: JobSpec) -> Iterator[None]:
    """Tell what keeps a job from starting: no such folder, no memory, no descriptor left, a NUL byte in a word."""
    try:
        yield
    except (OSError, ValueError) as error:
        is_short = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
        hint = "let the daemon have more open files: ulimit -n 4096" if is_short else ""
        raise JobStartError(f"cannot start {spec.argv[0]}: {error}", hint=hint) from error


def set_limits(pid: int, spec: JobSpec, enforced: Collection[str]) -> None:
    """Set a process's resource limits, which all that it starts will inherit; never above what holds already.

    Args:
        pid: The waiting first process.
        spec: Whose limits they are.
        enforced: The limits that its cgroup already holds: "memory", "pids".

    Raises:
        ProcessLookupError: It is gone.
    """
    limits = spec.limits
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_mb and limits.file_mb << 20,
        resource.RLIMIT_DATA: None if "memory" in enforced else limits.memory_mb and limits.memory_mb << 20,
        resource.RLIMIT_NPROC: limits.processes if spec.sandbox and "pids" not in enforced else None,
    }
    for kind, value in wanted.items():
        if value is not None:
            _, hard = resource.prlimit(pid, kind)
            lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(pid, kind, (lowest, lowest))


def _stand_back(pid: int) -> None:
    """Let other sessions go before a process's where the kernel shares processors out among sessions first.

    There the priority that it has from its start counts within its session only. Of an ordinary user the kernel takes one
    such word in a tenth of a second; a session for which it did not is no worse off.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(spawner.NICE))


def _command(spec: JobSpec, info_fd: int | None, door: str | None) -> list[str]:
    """Return the whole command line, from the outermost wrapper to the job's own words."""
    forget = " ".join(name for name in _SHELLS_OWN if name not in spec.env)
    script = f'echo && read -r _ || exit; unset {forget}; exec "$@"{" 2>&1" if spec.merge_stderr else ""}'
    waiting = ["/bin/sh", "-c", script, "sid-job", *spec.argv]
    scratch_mb = spec.limits.scratch_mb
    enclosure = (
        spec.sandbox.bwrap_argv(spec.env, info_fd=info_fd, scratch_mb=scratch_mb)
        if spec.sandbox
        else []
        if spec.outlives
        else _tied_to_daemon()
    )
    entering = ["/bin/sh", "-c", 'echo 0 >"$0" && exec "$@"', door] if door else []
    return [*entering, *enclosure, *waiting]


@functools.cache
def _tied_to_daemon() -> list[str]:
    """Return what makes the kernel kill a process when the daemon dies, where there is such a tool."""
    found = shutil.which("setpriv")
    # Busybox has a setpriv without this option.
    if found is None or Path(found).resolve().name != "setpriv":
        return []
    return [found, "--pdeathsig", "KILL"]
