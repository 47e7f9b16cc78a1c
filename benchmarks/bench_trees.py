"""What a candidate waits for until its worktree is there: a kept tree, against `git worktree add` and `remove`.

Both are done in turn on the same repository, in one run, so that a busy machine slows both: the ratios are what counts.
A kept tree is taken as `LocalWorkbench` takes it, edited, given back, and brought to the next commit as it is while agents
plan; what a candidate waits for and what goes on behind its back are told apart.

    python benchmarks/bench_trees.py [--files 2000 50000] [--times 10] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

from sid_actors.git.repository import discover
from sid_actors.workbench.checkouts.pool import PlainCheckout
from sid_actors.workbench.local import LocalWorkbench
from sid_protocol.settings import parse_settings

SETTINGS = parse_settings({"benchmark_command": "true", "benchmark_format": "number"})


class Walled:
    """Says that agents are in sandboxes, as they are by default."""

    def is_contained(self, settings: object) -> bool:
        """See `Shared.is_contained`."""
        return bool(settings)

    async def prepare(self, tree: str, settings: object) -> None:
        """Nothing is set up."""

    async def show(self, folder: str, prepared: object, settings: object, *, benchmark: bool) -> tuple[()]:
        """Nothing is shown."""
        assert folder
        assert settings
        assert prepared is None
        assert not benchmark
        return ()


def git(repo: Path, *words: str) -> str:
    """Run git there."""
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.invalid", "-c", "gc.auto=0")
    return subprocess.run(
        ["git", "-C", repo, *who, *words],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ).stdout.strip()


def make(base: Path, files: int) -> tuple[Path, list[str]]:
    """Make a repository of so many files, and two commits that differ in a few of them."""
    repo = base / "repo"
    repo.mkdir()
    for number in range(files):
        path = repo / f"d{number % 97}/e{number % 5}/f{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * 20)
    git(repo, "init", "-q", "-b", "main")
    commits = []
    for text in ("one", "two"):
        for number in range(5):
            (repo / f"changing{number}.txt").write_text(text)
        git(repo, "add", ".")
        git(repo, "commit", "-qm", text)
        commits.append(git(repo, "rev-parse", "HEAD"))
    return repo, commits


def edit(worktree: str) -> None:
    """Leave what an agent may leave."""
    Path(worktree, "changing1.txt").write_text("edited")
    Path(worktree, "left.txt").write_text("left")
    Path(worktree, "cache").mkdir()
    Path(worktree, "cache/left").write_text("left")


Row = list[tuple[float, float]]


def cpu_s() -> float:
    """Return the CPU time of this process and of those that it waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


async def timed(row: Row, work: Callable[[], Awaitable[Any]]) -> Any:
    """Note how long it takes, and what CPU time, in ms."""
    begun, cpu = time.perf_counter(), cpu_s()
    result = await work()
    row.append((1000 * (time.perf_counter() - begun), 1000 * (cpu_s() - cpu)))
    return result


def told(row: Row) -> str:
    """Return median and worst of the time, and the mean of the CPU time: its clock ticks in 10 ms."""
    walls = [wall for wall, _ in row]
    return f"{statistics.median(walls):8.1f} {max(walls):8.1f} {statistics.mean(cpu for _, cpu in row):8.1f}"


async def compare(files: int, times: int, folder: str | None) -> None:
    """Print the rows of one size."""
    base = Path(tempfile.mkdtemp(prefix="trees", dir=folder))
    try:
        repo, commits = await trio.to_thread.run_sync(make, base, files)
        info = await discover(str(repo))
        rows: dict[str, Row] = {
            name: []
            for name in ("add", "remove", "take", "give back", "prepare", "bench: fill", "bench: git")
        }
        bench = PlainCheckout(info.common_dir, str(base / "bench"))
        own = base / "own"
        own.mkdir()
        async with trio.open_nursery() as nursery:
            shared: Any = Walled()
            made = LocalWorkbench(
                info, str(base / "root"), "default", settings=lambda: SETTINGS, nursery=nursery, shared=shared
            )
            for number in range(1, times + 3):
                commit = commits[number % 2]
                if number == 3:  # the first ones make what is kept, and warm caches
                    for row in rows.values():
                        row.clear()
                there = base / f"added{number}"
                words = ("worktree", "add", "-q", "-b", f"b{number}", str(there), commit)
                await timed(rows["add"], lambda words=words: trio.to_thread.run_sync(git, repo, *words))
                await trio.to_thread.run_sync(edit, str(there))
                words = ("worktree", "remove", "--force", str(there))
                await timed(rows["remove"], lambda words=words: trio.to_thread.run_sync(git, repo, *words))
                await timed(rows["prepare"], lambda commit=commit: made.worktrees.prepare(commit))
                path = await timed(
                    rows["take"], lambda n=number, commit=commit: made.open_worktree(n, "executor_1", commit)
                )
                await trio.to_thread.run_sync(edit, path)
                await timed(rows["give back"], lambda n=number: made.worktrees.clean((), n, ()))
                await timed(rows["bench: fill"], lambda commit=commit: bench.fill(commit))
                words = (
                    f"--git-dir={info.common_dir}",
                    f"--work-tree={own}",
                    "read-tree",
                    "--reset",
                    "-u",
                    commit,
                )
                os.environ["GIT_INDEX_FILE"] = str(base / "own.index")
                await timed(rows["bench: git"], lambda words=words: trio.to_thread.run_sync(git, own, *words))
                del os.environ["GIT_INDEX_FILE"]
                await trio.to_thread.run_sync(edit, bench.folder)
            await made.close()
        print(
            f"{files} files: median and worst time of {times}, mean CPU time, ms; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        )
        for name, row in rows.items():
            print(f"  {name:12s} {told(row)}")
        half = {name: statistics.median(wall for wall, _ in row) for name, row in rows.items()}
        print(
            f"  add and remove / take and give back: {(half['add'] + half['remove']) / (half['take'] + half['give back']):.1f}"
        )
        print(f"  add / take, what a candidate waits for: {half['add'] / half['take']:.1f}")
    finally:
        shutil.rmtree(base, ignore_errors=True)


def main() -> None:
    """Print the rows of each size."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--files", type=int, nargs="+", default=[2000, 50000])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument(
        "--folder", help="where the repositories are made; by default where temporary files are"
    )
    options = parser.parse_args()
    for files in options.files:
        trio.run(compare, files, options.times, options.folder)


if __name__ == "__main__":
    main()
