"""The git command line as a job: no hook, no prompt, no pager, no signing, the user's index and stash untouched.

For what grows with the number of files, which libgit2 would do while it holds the interpreter's lock:
worktrees, checkouts, listings, diffs, push. It is started outside any sandbox, so only on a git directory that
no agent can write. Filters (LFS) run where the user's own configuration names them, and nowhere else. Every
environment variable that would steer git elsewhere is taken away.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sid_actors.jobs.job import JobLimits, JobSpec
from sid_actors.jobs.process import run_job
from sid_protocol.errors import GitError

DEADLINE_S = 900.0  # a checkout of a large repository on a throttled disk took 93 s
OUTPUT_MB = 512
_OFF = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.sparseCheckout=false",
    "core.splitIndex=false",
    "core.safecrlf=false",
    "core.quotePath=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "push.gpgSign=false",
    "submodule.recurse=false",
    "push.recurseSubmodules=no",
    "gc.auto=0",
    "maintenance.auto=false",
    "credential.interactive=false",
    "advice.detachedHead=false",
)
_PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_SSL_CAINFO", "SSL_CERT_FILE"),
    *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
_FIXED = {
    "LC_ALL": "C",  # its messages are read
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ASKPASS": "/bin/false",
    "SSH_ASKPASS": "/bin/false",
    "GIT_EDITOR": "/bin/false",
    "GIT_MERGE_AUTOEDIT": "no",
}
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class GitOutput:
    """What a git command printed, and its exit status."""

    code: int
    out: bytes
    err: str

    @property
    def line(self) -> str:
        """Its output as one path or word, without the final newline."""
        return os.fsdecode(self.out.removesuffix(b"\n"))

    @property
    def paths(self) -> list[str]:
        """Its output as paths, each ended by a NUL byte."""
        return [os.fsdecode(path) for path in self.out.split(b"\0") if path]


class GitTimedOut(GitError):
    """A git command was killed at its deadline."""


class GitPrintedTooMuch(GitError):
    """A git command printed more than it may."""


async def git(
    *args: str,
    cwd: str,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    deadline_s: float | None = DEADLINE_S,
    expect: Collection[int] = (0,),
    outlives: bool = False,
    output_mb: int = OUTPUT_MB,
) -> GitOutput:
    """Run one git command to its end.

    Args:
        args: Its words, after the flags that keep it harmless.
        cwd: Where it runs.
        stdin: What it reads.
        env: More variables, such as `GIT_INDEX_FILE`.
        deadline_s: Seconds until it is killed.
        expect: Exit codes that are no failure.
        outlives: See `JobSpec.outlives`.
        output_mb: The most that it may print, in MiB.

    Raises:
        GitPrintedTooMuch: it printed more than it may.
        GitTimedOut: it was killed at its deadline.
        GitError: it failed.
    """
    passed = {name: value for name in _PASSED if (value := os.environ.get(name)) is not None}
    off = (word for setting in _OFF for word in ("-c", setting))
    spec = JobSpec(
        argv=("git", "--no-pager", "--literal-pathspecs", *off, *args),
        cwd=cwd,
        env={**passed, **_FIXED, **(env or {})},
        stdin=stdin,
        deadline_s=deadline_s,
        limits=JobLimits(processes=None, open_files=None, file_mb=None, output_mb=output_mb),
        sandbox=None,
        outlives=outlives,
    )
    result = await run_job(spec)
    verb = next(word for word in args if not word.startswith("-"))
    if result.timed_out:
        raise GitTimedOut(f"git {verb} did not end within {deadline_s:.0f} s")
    if result.stdout.dropped:
        raise GitPrintedTooMuch(f"git {verb} printed more than {output_mb} MB")
    output = GitOutput(
        -1 if result.exit_code is None else result.exit_code,
        result.stdout.head + result.stdout.tail,
        without_credentials(result.stderr.text()),
    )
    if output.code not in expect:
        raise GitError(f"git {verb} failed: {told(output.err) or f'exit code {output.code}'}")
    return output


def told(stderr: str) -> str:
    """Return what git complains about, as one line: also of what is missing, and what it goes on with, indented."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    chosen: list[str] = []
    goes_on = False
    for line in lines:
        begins = line.startswith(("fatal:", "error:")) or line.endswith("not found")
        goes_on = begins or (goes_on and line[0].isspace())
        if goes_on:
            chosen.append(line)
    return " ".join(" ".join(chosen or lines).split())[:500]


def without_credentials(text: str) -> str:
    """Return text without user names and tokens in URLs."""
    return _CREDENTIALS.sub("", text)
