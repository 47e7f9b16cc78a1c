"""Repositories as people have them: set-up, a round with a win, and the user's things as they were."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import MakeRepo
from tests.e2e.harness import SEALED_BENCHMARK, World
from tests.repos import Repo

WIN = {"role": "executor", "edit": {"value.txt": "9\n"}}


def one_win(world: World, repo: Repo, *more: str, edit: dict[str, str] | None = None) -> str:
    """Set a repository up, run one round that wins, see that nothing of the user's changed; return the branch."""
    before = repo.fingerprint()
    agent = world.agent()
    agent.script({"role": "executor", "edit": {"value.txt": "9\n"} | (edit or {})})
    world.init(repo, agent, *more)
    world.run(repo, "--rounds", "1")

    row = world.row(repo)
    assert row["best_score"] == 9, world.rounds(repo)
    assert repo.fingerprint() == before
    return f"improve/{row['goal_slug']}"


def with_submodule(repo: MakeRepo) -> Repo:
    library = repo({"lib.txt": "1\n"}, name="library")
    made = repo(SEALED_BENCHMARK | {"bench.sh": "cat lib/lib.txt >&2 && cat value.txt\n"})
    made.git("-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(library.path), "lib")
    made.commit(message="Add the library")
    return made


def test_a_submodule_is_filled_from_the_users_own_modules(world: World, repo: MakeRepo) -> None:
    made = with_submodule(repo)
    (made.path.parent / "library").rename(made.path.parent / "gone")  # there is no network to ask

    branch = one_win(world, made)

    assert made.git("diff", "--name-only", "main", branch) == "value.txt"


def test_a_submodule_that_is_not_there_is_refused_in_one_line(world: World, repo: MakeRepo) -> None:
    made = with_submodule(repo)
    subprocess.run(["git", "clone", "--quiet", made.path, "fresh"], cwd=made.path.parent, check=True)
    done = world.init(Repo(made.path.parent / "fresh"), world.agent(), code=5)

    assert "the submodule lib is not here" in done.err
    assert "git submodule update --init" in done.err


@pytest.mark.slow
def test_content_filters_run_on_checkout_and_raise_no_alarm(world: World, repo: MakeRepo) -> None:
    made = repo()
    made.git("config", "filter.fake.clean", "sed s/^/pointer:/")
    made.git("config", "filter.fake.smudge", "sed s/^pointer://")
    made.git("config", "filter.fake.required", "true")
    bench = "grep -q '^content$' big.bin && cat value.txt\n"
    made.commit(
        {
            **SEALED_BENCHMARK,
            ".gitattributes": "*.bin filter=fake\n",
            "big.bin": "content\n",
            "bench.sh": bench,
        }
    )
    assert made.git("show", "main:big.bin") == "pointer:content"

    branch = one_win(world, made)

    assert made.git("show", f"{branch}:big.bin") == "pointer:content"


@pytest.mark.slow
def test_a_changed_file_under_a_content_filter_is_out_of_scope(world: World, repo: MakeRepo) -> None:
    made = repo()
    made.git("config", "filter.fake.clean", "sed s/^/pointer:/")
    made.git("config", "filter.fake.smudge", "sed s/^pointer://")
    made.commit({**SEALED_BENCHMARK, ".gitattributes": "*.bin filter=fake\n", "big.bin": "content\n"})
    agent = world.agent()
    agent.script({"role": "executor", "edit": {"value.txt": "9\n", "big.bin": "other\n"}})
    world.init(made, agent)
    world.run(made, "--rounds", "1")

    assert world.row(made)["best_score"] == 1
    assert "big.bin" in world.sictl("show", made.path, "1", "--json").out


@pytest.mark.slow
def test_a_sparse_checkout_is_measured_whole(world: World, repo: MakeRepo) -> None:
    made = repo(
        SEALED_BENCHMARK
        | {"deep/needed.txt": "1\n", "bench.sh": "cat deep/needed.txt >&2 && cat value.txt\n"}
    )
    made.git("sparse-checkout", "set", "--cone", "other")
    assert not (made.path / "deep").exists()

    one_win(world, made)

    assert not (made.path / "deep").exists()


@pytest.mark.slow
def test_a_linked_worktree_of_the_users_is_a_target(world: World, repo: MakeRepo) -> None:
    made = repo(SEALED_BENCHMARK)
    made.git("worktree", "add", "--quiet", "-b", "work", "../linked worktree")
    linked = Repo(made.path.parent / "linked worktree")
    before = made.fingerprint()

    branch = one_win(world, linked)

    assert made.fingerprint() == before
    assert made.git("show", f"{branch}:value.txt") == "9"
    assert linked.path in made.worktrees()


def test_links_line_ends_and_odd_names_survive(world: World, repo: MakeRepo) -> None:
    names = ("with space.txt", "ümläut 日本.txt", "new\nline.txt", "-dash.txt", 'quo"te.txt')
    made = repo()
    made.git("config", "core.autocrlf", "true")
    made.write(SEALED_BENCHMARK | {name: f"{name}\n" for name in names})
    made.write(
        {
            ".gitattributes": "*.crlf text eol=crlf\n*.sh text eol=lf\n",
            "dos.crlf": "a\r\nb\r\n",
            "raw.txt": b"\xff\x00\r\n",
        }
    )
    (made.path / "link").symlink_to("value.txt")
    (made.path / "dangling").symlink_to("/nowhere/at all")
    made.commit(message="Odd things")
    for name in names:
        (made.path / name).unlink()
        made.git("checkout", "--", name)

    branch = one_win(world, made, edit={"with space.txt": "changed\n", "neu ü.txt": "new\n"})

    changed = made.git("diff", "-z", "--name-only", "main", branch).split("\0")
    assert sorted(filter(None, changed)) == ["neu ü.txt", "value.txt", "with space.txt"]


def test_what_a_project_needs_to_run_is_there(world: World, repo: MakeRepo) -> None:
    made = repo(
        SEALED_BENCHMARK
        | {
            "bench.sh": "cat env/made data/big >&2 && cat value.txt\n",
            ".gitignore": "/env/\n/data/\n",
            "requirements.txt": "x\n",
        }
    )
    made.write({"data/big": "5\n"})
    set_up = 'setup_command="mkdir env && cp requirements.txt env/made"'

    branch = one_win(world, made, "--set", set_up, "--set", 'share_paths=["data"]')

    assert made.git("diff", "--name-only", "main", branch) == "value.txt"


@pytest.mark.parametrize(
    ("setting", "code", "words"),
    [
        ('setup_command="echo no such package; exit 3"', 5, "exit status 3: no such package"),
        ('share_paths=["missing"]', 2, "missing does not exist"),
        ('share_paths=["value.txt"]', 2, "tracked files"),
    ],
)
def test_what_cannot_be_provided_is_refused_at_set_up(
    world: World, repo: MakeRepo, setting: str, code: int, words: str
) -> None:
    made = repo(SEALED_BENCHMARK)
    done = world.init(made, world.agent(), "--set", setting, code=code)

    assert words in done.err
    assert not (made.path / ".sid/topics/default/setup").exists()


@pytest.mark.slow
def test_twenty_thousand_files(world: World, repo: MakeRepo) -> None:
    many = {f"d{n % 200}/f{n}.txt": f"{n}\n" for n in range(20_000)}
    made = repo(SEALED_BENCHMARK | many)

    branch = one_win(world, made)

    assert made.git("diff", "--name-only", "main", branch) == "value.txt"
    assert not Path(made.path, "worktrees").exists()
