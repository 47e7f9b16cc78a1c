"""What a checkout has besides tracked files: the set-up's result and shared paths, with and without a sandbox."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sid_actors.jobs.job import JobSpec
from sid_actors.jobs.process import run_job
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_actors.workbench.setup_store import SetupFailed
from sid_actors.workbench.shared import check_paths
from sid_protocol.errors import REFUSED, SettingsInvalid
from tests.actors.workbench.conftest import Bay, OpenBay, settings_of
from tests.conftest import MakeRepo
from tests.e2e.harness import sandbox_works

# The score is what the set-up made of the lock file.
SET_UP = "mkdir -p .venv && cp requirements.txt .venv/made && echo x >> counted && rm -f README.md"
FILES = {
    "bench.py": "print(open('.venv/made').read())\n",
    "requirements.txt": "7\n",
    "README.md": "Read me.\n",
    ".gitignore": "/data/\n.venv/\n",
    "value.txt": "1\n",
}

both = pytest.mark.parametrize(
    "sandboxed",
    [
        pytest.param(True, marks=pytest.mark.skipif(not sandbox_works(), reason="no sandbox here")),
        False,
    ],
    ids=["sandbox", "plain"],
)


async def in_worktree(bay: Bay, worktree: Path, command: str, *, sandboxed: bool) -> tuple[int | None, str]:
    """Run a command as an agent of this worktree would."""
    shown = await bay.workbench.shown_paths(str(worktree))
    sandbox = Sandbox(
        workdir=str(worktree),
        writable=(str(worktree),),
        readable=(),
        sealed=(),
        network=False,
        home="/home/sid",
        mounts=shown,
    )
    spec = JobSpec(
        argv=("/bin/sh", "-c", command),
        cwd=str(worktree),
        env={"PATH": "/usr/bin:/bin"},
        deadline_s=30,
        sandbox=sandbox if sandboxed else None,
        merge_stderr=True,
    )
    done = await run_job(spec)
    return done.exit_code, done.stdout.text()


def results(bay: Bay) -> list[Path]:
    return sorted(path for path in bay.repo.path.glob(".sid/topics/default/setup/*") if path.is_dir())


@both
async def test_the_set_up_runs_once_and_every_checkout_sees_its_result(
    repo: MakeRepo, open_bay: OpenBay, sandboxed: bool
) -> None:
    made = repo(FILES)
    async with open_bay(made, sandboxed=sandboxed, setup_command=SET_UP, setup_network=False) as bay:
        first = await bay.bench.measure(bay.base, 1, bay.settings)
        again = await bay.bench.measure(bay.base, 2, bay.settings)
        guard = await bay.bench.check(bay.base, "cat .venv/made counted README.md", 1, bay.settings)
        worktree = await bay.open()
        seen = await in_worktree(bay, worktree, "cat .venv/made", sandboxed=sandboxed)
        view = Path(await bay.workbench.view(bay.base))
        read = await in_worktree(bay, view, "cat .venv/made", sandboxed=sandboxed)

        assert (first.score, again.score, first.why) == (7.0, 7.0, "")
        assert (guard.passed, guard.output) == (
            True,
            "7\nx\nRead me.",
        )  # tracked files are the checkout's own
        assert seen == read == (0, "7\n")
        assert len(results(bay)) == 1
        assert sorted(path.name for path in results(bay)[0].iterdir()) == [".venv", "counted"]


@both
async def test_what_is_shown_is_no_edit_of_the_agents(
    repo: MakeRepo, open_bay: OpenBay, sandboxed: bool
) -> None:
    made = repo(FILES)
    made.write({"data/big": "5\n"})
    values = {"setup_command": SET_UP, "share_paths": ["data"], "sealed_files": ["requirements.txt"]}
    async with open_bay(made, sandboxed=sandboxed, **values) as bay:
        worktree = await bay.open()
        command = "echo 2 > value.txt; cat data/big counted"
        assert await in_worktree(bay, worktree, command, sandboxed=sandboxed) == (0, "5\nx\n")
        collected = await bay.collect()

        assert (collected.paths, collected.refusal) == (("value.txt",), None)


@pytest.mark.skipif(not sandbox_works(), reason="no sandbox here")
async def test_only_what_is_named_so_can_be_written(repo: MakeRepo, open_bay: OpenBay) -> None:
    made = repo(FILES)
    made.write({"data/big": "5\n", "cache/x": "1\n"})
    values = {"setup_command": SET_UP, "share_paths": ["data", "cache:rw"]}
    async with open_bay(made, sandboxed=True, **values) as bay:
        worktree = await bay.open()
        for path in ("data/big", "data/new", ".venv/made", "counted"):
            code, said = await in_worktree(bay, worktree, f"echo evil > {path}", sandboxed=True)
            assert (code, "Read-only" in said) == (2, True)
        assert (await in_worktree(bay, worktree, "echo 2 > cache/x", sandboxed=True))[0] == 0

    assert (made.path / "data/big").read_text() == "5\n"
    assert (made.path / "cache/x").read_text() == "2\n"


@both
async def test_another_lock_file_is_another_set_up(
    repo: MakeRepo, open_bay: OpenBay, sandboxed: bool
) -> None:
    made = repo(FILES)
    async with open_bay(made, sandboxed=sandboxed, setup_command=SET_UP) as bay:
        candidate = await bay.attempt(lambda tree: (tree / "requirements.txt").write_text("9\n"))
        other = await bay.attempt(lambda tree: (tree / "value.txt").write_text("9\n"), number=2)
        assert candidate.commit is not None
        assert other.commit is not None

        assert (await bay.bench.measure(candidate.commit, 1, bay.settings)).score == 9.0
        assert (await bay.bench.measure(other.commit, 1, bay.settings)).score == 7.0
        assert len(results(bay)) == 2


async def test_a_failing_set_up_is_told_in_its_words_and_leaves_nothing(
    repo: MakeRepo, open_bay: OpenBay
) -> None:
    made = repo(FILES)
    async with open_bay(made, setup_command="echo no such package >&2; exit 3") as bay:
        with pytest.raises(SetupFailed, match="exit status 3: no such package") as caught:
            await bay.bench.measure(bay.base, 1, bay.settings)

        assert caught.value.rpc_code == REFUSED
        assert list(made.path.glob(".sid/topics/default/setup/*")) == []


async def test_a_candidate_whose_dependencies_cannot_be_set_up_fails_alone(
    repo: MakeRepo, open_bay: OpenBay
) -> None:
    made = repo(FILES)
    async with open_bay(made, setup_command=f"grep 7 requirements.txt && {SET_UP}") as bay:
        candidate = await bay.attempt(lambda tree: (tree / "requirements.txt").write_text("9\n"))
        assert candidate.commit is not None
        run = await bay.bench.measure(candidate.commit, 1, bay.settings)
        guard = await bay.bench.check(candidate.commit, "true", 1, bay.settings)

        assert (run.score, run.status, guard.passed) == (None, "error", False)
        assert "setup_command failed" in run.why


async def test_a_link_that_a_candidate_puts_in_the_way_leads_nowhere(
    repo: MakeRepo, open_bay: OpenBay, short_dir: Path
) -> None:
    made = repo({**FILES, "bench.py": "print(open('sub/data/big').read())\n"})
    made.write({"sub/data/big": "5\n", "bait/x": "1\n"})
    made.git("add", "bait")
    made.commit(message="Bait")
    made.git("rm", "-rq", "--cached", "sub")
    made.git("commit", "-qm", "no sub")
    async with open_bay(made, share_paths=["sub/data"]) as bay:
        candidate = await bay.attempt(lambda tree: _replace_by_link(tree / "sub", short_dir))
        if candidate.commit is not None:
            assert (await bay.bench.measure(candidate.commit, 1, bay.settings)).score == 5.0
        assert not (short_dir / "data").exists()


def _replace_by_link(path: Path, target: Path) -> None:
    if path.is_dir():
        (path / "data").unlink()
        path.rmdir()
    path.symlink_to(target)


@both
async def test_a_virtual_environment_and_an_editable_install_find_the_measured_code(
    repo: MakeRepo, open_bay: OpenBay, sandboxed: bool
) -> None:
    # What `pip install --editable .` leaves: a file that names the checkout.
    set_up = (
        f"{sys.executable} -m venv --without-pip .venv"
        ' && site=$(.venv/bin/python -c "import site; print(site.getsitepackages()[0])")'
        ' && echo "$PWD/src" > "$site/editable.pth"'
    )
    made = repo(
        {
            "src/mod.py": "VALUE = 1\n",
            "bench.sh": "cd /; exec \"$OLDPWD/.venv/bin/python\" -c 'import mod; print(mod.VALUE)'\n",
            ".gitignore": ".venv/\n",
        }
    )
    values = {"setup_command": set_up, "benchmark_command": "sh bench.sh"}
    async with open_bay(made, sandboxed=sandboxed, **values) as bay:
        candidate = await bay.attempt(lambda tree: (tree / "src/mod.py").write_text("VALUE = 2\n"))
        assert candidate.commit is not None
        runs = [await bay.bench.measure(commit, 1, bay.settings) for commit in (bay.base, candidate.commit)]
        guard = await bay.bench.check(candidate.commit, "sh bench.sh", 1, bay.settings)

    if sandboxed:
        assert [run.score for run in runs] == [1.0, 2.0]
        assert (guard.passed, guard.output) == (True, "2")
    else:  # without a sandbox there is no such path: it fails rather than measure something else
        assert [run.score for run in runs] == [None, None]
        assert "No module named 'mod'" in runs[0].why


@pytest.mark.parametrize(
    ("key", "item", "why"),
    [
        ("share_paths", "missing", "does not exist"),
        ("share_paths", "../elsewhere", "leads out of the repository"),
        ("share_paths", "src", "holds tracked files"),
        ("share_paths", ".", "holds tracked files"),
        ("benchmark_paths", "value.txt", "holds tracked files"),
        ("benchmark_paths", "missing", "does not exist"),
        ("agent_paths", "~/missing", "does not exist"),
        ("agent_paths", "/:rw", "write everywhere"),
    ],
)
def test_paths_that_cannot_be_shown_are_refused(repo: MakeRepo, key: str, item: str, why: str) -> None:
    made = repo({"src/a.py": "", "value.txt": ""})

    with pytest.raises(SettingsInvalid, match=why):
        check_paths(settings_of(**{key: [item]}), str(made.path), ["src/a.py", "value.txt"], "/home/sid")
