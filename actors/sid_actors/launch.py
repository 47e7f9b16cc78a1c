"""How a job's first process is started, held before its first instruction, limited, and let go.

`process.run_job` alone uses this. Why it is done so:

- The first process is a shell that says it is ready with one byte on standard output and waits for one byte on
  standard input: what bubblewrap sets up last, the death signal that ties a sandbox's init to the daemon, is in
  force by then. A daemon that dies before leaves a shell that reads end of file and exits. So the job itself
  inherits no descriptor but its three.
- Bubblewrap tells the id of its init before it lets that go on. It tells a file and not a pipe: a daemon that dies meanwhile
  would be the end of the pipe and of bubblewrap's outer process, and its init would wait for that for ever.
- It is spawned on the event loop's own thread: the death signal belongs to the spawning thread, and trio's
  worker threads end after 10 idle seconds.
- Open files and file size are resource limits, for each process. Memory and the number of processes are the
  cgroup's where it has the controllers. Else memory is RLIMIT_DATA, for each process (RLIMIT_AS would break what
  reserves address space, such as V8), and the number of processes holds only in a sandbox, where RLIMIT_NPROC
  counts within the sandbox's own user namespace instead of all the user's processes; root is exempt from it.
  What so is not held for a job as a whole, `overload` looks at.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

import trio

from sid_actors import containment, procfs
from sid_actors.containment import JOB_VARIABLE, Mark
from sid_actors.job import JobSpec, JobStartError

# Added to the environment by the shell or bubblewrap, which is to be exactly what the caller said.
_SHELLS_OWN = ("OLDPWD", "PWD", "SHLVL")
_MOST_SAID = 4096  # bytes; bubblewrap tells a dozen numbers


class Launch:
    """The waiting first process of a job and its pipes.

    Args:
        spec: What is to be run.
        mark: What its processes will be known by.
        door: The file by which it enters its cgroup, or None.
        held: Closes the descriptors when the job is over.

    Raises:
        JobStartError: No process could be started.
    """

    def __init__(self, spec: JobSpec, mark: Mark, door: str | None, held: contextlib.ExitStack) -> None:
        self._spec = spec
        self._mark = mark
        self._held = held
        self.streams: dict[str, trio.lowlevel.FdStream] = {}
        self._started = held.enter_context(containment.known_job(mark))
        self.process = self._spawn(door)
        self.pidfd = self._hold(os.pidfd_open(self.process.pid))
        self.init: int | None = None
        self.init_pidfd: int | None = None

    def _spawn(self, door: str | None) -> subprocess.Popen[bytes]:
        spec, mark = self._spec, {JOB_VARIABLE: self._mark.job_id}
        with contextlib.ExitStack() as theirs:
            ends = {}
            for name in ("stdin", "stdout", "stderr"):
                read, write = os.pipe()
                ours, ends[name] = (write, read) if name == "stdin" else (read, write)
                theirs.callback(os.close, ends[name])
                self.streams[name] = trio.lowlevel.FdStream(ours)
                self._held.callback(self.streams[name].close)
            info_fd = self._info = self._hold(os.memfd_create("sid-job")) if spec.sandbox else None
            try:
                with containment.starting:
                    process = subprocess.Popen(
                        _command(spec, info_fd, door),
                        stdin=ends["stdin"],
                        stdout=ends["stdout"],
                        stderr=ends["stderr"],
                        cwd=None if spec.sandbox else spec.cwd,
                        env=mark if spec.sandbox else {**spec.env, **mark},
                        pass_fds=() if info_fd is None else (info_fd,),
                        start_new_session=True,
                    )
                    self._started.add(process.pid)
                    return process
            except (OSError, ValueError) as error:  # no such folder, no memory, a NUL byte in a word
                raise JobStartError(f"cannot start {spec.argv[0]}: {error}") from error

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
        first = self.process.pid
        if await self.streams["stdout"].receive_some(1) != b"\n":
            return False
        try:
            if self._info is not None:
                self.init = int(json.loads(os.pread(self._info, _MOST_SAID, 0))["child-pid"])
                self._started.add(self.init)
                self.init_pidfd = self._hold(os.pidfd_open(self.init))
                (first,) = procfs.children_of(self.init)
            set_limits(first, self._spec, enforced)
            self._mark.put_on(first)
            await self.streams["stdin"].send_all(b"\n")
        except (ProcessLookupError, ValueError, trio.BrokenResourceError):  # killed by someone meanwhile
            return False
        return True


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
