"""The sandbox: what a job cannot see, write, reach or undo, by trying it; and the argument list that says so."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from sid_actors.jobs import containment, procfs
from sid_actors.jobs.job import JobResult, Mount
from sid_actors.jobs.process import run_job
from sid_actors.workbench.sandbox import probe
from sid_actors.workbench.sandbox.bwrap import Sandbox
from sid_actors.workbench.sandbox.probe import probe_bwrap
from sid_actors.workbench.sandbox.toolchain import find_toolchain
from tests.actors.job_cases import make_sandbox, make_spec, need_sandbox
from tests.conftest import MakeRepo

inside = pytest.mark.usefixtures("real_process")


async def attempt(folder: Path, command: str, **described: object) -> JobResult:
    """Run a line for the shell in a sandbox where `folder`, if nothing else is said, is writable."""
    need_sandbox()
    return await run_job(make_spec(folder, command, sandbox=make_sandbox(folder, **described)))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def sealed_tree(short_dir: Path) -> Path:
    """A worktree with a sealed benchmark two folders deep, a sealed folder, and a file to work on."""
    tree = short_dir / "tree"
    for name, text in {"app.py": "x = 1\n", "a/b/bench.py": "score\n", "tests/t.py": "test\n"}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    return tree


@inside
@pytest.mark.parametrize(
    "attack",
    [
        "echo evil > a/b/bench.py",
        "echo evil >> a/b/bench.py",
        "rm -f a/b/bench.py",
        "mv a/b/bench.py elsewhere",
        "echo evil > new; mv -f new a/b/bench.py",
        "ln -f app.py a/b/bench.py",
        "mv a/b a/c; mkdir a/b; echo evil > a/b/bench.py",
        "mv a c; mkdir -p a/b; echo evil > a/b/bench.py",
        "rm -rf a; mkdir -p a/b; echo evil > a/b/bench.py",
        "chmod u+w a/b/bench.py && echo evil > a/b/bench.py",
        "umount a/b/bench.py; echo evil > a/b/bench.py",
        "mount -o remount,rw a/b/bench.py; echo evil > a/b/bench.py",
        "unshare -Urm sh -c 'umount a/b/bench.py; echo evil > a/b/bench.py'",
        "echo evil > tests/new.py",
        "mv tests old; mkdir tests",
        "truncate -s 0 tests/t.py",
        "touch -d 2001-01-01 a/b/bench.py",
        "python3 -c \"open('a/b/bench.py', 'r+').write('evil')\"",
    ],
)
async def test_a_seal_holds(sealed_tree: Path, attack: str) -> None:
    def sealed_state() -> list[tuple[str, str, int]]:
        paths = [sealed_tree / "a/b/bench.py", *sorted((sealed_tree / "tests").rglob("*"))]
        return [(str(path), path.read_text(), path.stat().st_mtime_ns) for path in paths]

    before = sealed_state()
    sealed = (str(sealed_tree / "a/b/bench.py"), str(sealed_tree / "tests"), str(sealed_tree / "tests/t.py"))
    done = await attempt(sealed_tree, f"{attack}; echo x = 2 > app.py; echo new > a/b/new", sealed=sealed)

    assert done.exit_code is not None
    assert sealed_state() == before
    assert (sealed_tree / "a/b/bench.py").is_file()


@inside
async def test_work_beside_a_seal_goes_on(sealed_tree: Path) -> None:
    command = "echo x = 2 > app.py; echo new > a/b/new; mkdir d; mv d e; rm e -r; echo kept > f"
    done = await attempt(sealed_tree, command, sealed=(str(sealed_tree / "a/b/bench.py"),))

    assert done.stderr.text() == ""
    assert (sealed_tree / "app.py").read_text() == "x = 2\n"
    assert (sealed_tree / "a/b/new").exists()
    assert (sealed_tree / "f").exists()


@inside
async def test_the_rest_of_the_machine_is_absent_or_read_only(short_dir: Path) -> None:
    tree, other, home = short_dir / "tree", short_dir / "other", Path.home()
    for folder in (tree, other):
        folder.mkdir()
    (home / "secret").write_text("s3cret")
    (other / "secret").write_text("s3cret")
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(short_dir / "s"))
        daemon.listen()
        tries = [
            f"cat {home}/secret",
            f"cat {other}/secret",
            f"echo evil > {other}/new",
            "echo evil > /usr/evil",
            "echo evil > /etc/evil",
            "mkdir /evil",
            "cat /etc/shadow",
            f"kill -0 {os.getpid()}",
            f"ls /proc/{os.getpid()}",
            "ls /sys/fs/cgroup",
            f"python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('{short_dir}/s')\"",
        ]
        done = await attempt(
            tree, "\n".join(f"if {line} 2>/dev/null; then echo '{line[:40]}'; fi" for line in tries)
        )

    assert done.stdout.text() == ""
    assert names_in(other) == ["secret"]


@inside
async def test_no_privilege_is_left_and_none_can_be_had(short_dir: Path) -> None:
    done = await attempt(
        short_dir, "grep -E '^Cap(Eff|Prm|Bnd)|NoNewPrivs' /proc/self/status; unshare -U true"
    )

    held = dict(line.split(":\t") for line in done.stdout.text().splitlines())
    assert held == {"CapPrm": "0" * 16, "CapEff": "0" * 16, "CapBnd": "0" * 16, "NoNewPrivs": "1"}
    assert done.exit_code != 0


@inside
async def test_scratch_is_private_and_the_environment_is_what_was_said(short_dir: Path) -> None:
    marker = f"sid-{short_dir.parent.name}-{short_dir.name}"
    tree, scratch = short_dir / "tree", Path("/tmp", marker)
    tree.mkdir()
    command = (
        f"echo x > /tmp/{marker} && echo x > $HOME/{marker} && ls -A $HOME; id -u; env; echo x > ../beside"
    )
    done = await attempt(tree, command)

    lines = done.stdout.text().splitlines()
    assert lines[:2] == [marker, str(os.getuid())]
    assert {line.partition("=")[0] for line in lines[2:]} == {"PATH", "HOME", "LANG", "PWD"}
    assert marker not in names_in(scratch.parent)
    assert names_in(short_dir) == ["home", "run", "tree"]
    assert names_in(short_dir / "home") == []


@inside
@pytest.mark.parametrize("network", [False, True])
async def test_the_network_is_there_only_if_asked_for(short_dir: Path, network: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('reached')"
        done = await attempt(short_dir, f'python3 -c "{code}"', network=network)

    assert (done.stdout.text() == "reached\n") is network


@inside
async def test_git_can_be_read_but_not_written(repo: MakeRepo, short_dir: Path) -> None:
    made = repo({"app.py": "x = 1\n"})
    tree = short_dir / "worktrees/one"
    made.git("worktree", "add", "--quiet", str(tree))
    git_dir = str(made.path / ".git")
    before = made.fingerprint()
    command = (
        "echo x = 2 > app.py; git status --short; git log --oneline\n"
        "git commit -qam evil; git config user.name evil; git branch evil; rm .git; mv .git old; echo evil > .git\n"
        f"echo evil > {git_dir}/hooks/pre-commit; mv {git_dir} {git_dir}2"
    )
    done = await attempt(tree, command, sealed=(str(tree / ".git"),), readable=(git_dir,))

    assert done.stdout.text().splitlines()[0] == " M app.py"
    assert "Start" in done.stdout.text()
    assert made.fingerprint() == before
    assert (tree / ".git").read_text().startswith("gitdir: ")


@inside
async def test_the_interpreters_on_path_run(short_dir: Path) -> None:
    done = await attempt(
        short_dir, "python3 -c 'import ssl, json; print(1)'; python3 -m venv --help >/dev/null && echo 2"
    )
    assert done.stdout.text() == "1\n2\n"
    if shutil.which("node"):
        assert (await attempt(short_dir, "node -p 1+1")).stdout.text() == "2\n"


@inside
async def test_a_mount_shows_another_folder_with_its_seal(short_dir: Path) -> None:
    real, shown = short_dir / "real", short_dir / "shown"
    (real / "in").mkdir(parents=True)
    (real / "in/sealed").write_text("as it was\n")
    command = "cat in/sealed; echo evil > in/sealed; mv in out; echo new > in/new; echo evil > ../shared/x"
    done = await attempt(
        short_dir,
        command,
        workdir=str(shown),
        writable=(),
        sealed=(str(shown / "in/sealed"),),
        mounts=(
            Mount(str(shown), writable=True, source=str(real)),
            Mount(str(short_dir / "shared"), source=str(real)),
        ),
    )

    assert done.stdout.text() == "as it was\n"
    assert (real / "in/sealed").read_text() == "as it was\n"
    assert (real / "in/new").read_text() == "new\n"
    assert not (real / "x").exists()


def described(**changes: object) -> list[str]:
    """The binds of a sandbox as `flag path`."""
    base = {
        "workdir": "/w",
        "writable": ("/w",),
        "readable": (),
        "sealed": (),
        "network": False,
        "home": "/h",
    }
    argv = Sandbox(**{**base, **changes}).bwrap_argv({}, info_fd=None)  # type: ignore[arg-type] # built from parts
    start = argv.index("/h") + 1
    return [" ".join(argv[i : i + 3]) for i in range(start, argv.index("--remount-ro"), 3)]


def test_what_is_deeper_wins_whatever_the_order() -> None:
    binds = described(writable=("/w/x/out", "/w"), readable=("/w/x", "/r"), sealed=("/w/x/in", "/w/a/s"))
    assert binds == [
        "--ro-bind-try /r /r",
        "--bind /w /w",
        "--bind /w/a /w/a",
        "--ro-bind /w/a/s /w/a/s",
        "--ro-bind-try /w/x /w/x",
        "--bind /w/x/out /w/x/out",
    ]


def test_nothing_inside_a_sealed_folder_becomes_writable() -> None:
    assert described(sealed=("/w/t", "/w/t/deep/er.py")) == ["--bind /w /w", "--ro-bind /w/t /w/t"]


async def test_the_probe_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    why = await probe_bwrap()
    assert why == "bubblewrap is not installed; apt-get install bubblewrap"


async def test_the_probe_repeats_a_failure_in_one_line_with_what_mends_it(
    monkeypatch: pytest.MonkeyPatch, short_dir: Path
) -> None:
    fake = short_dir / "bwrap"
    fake.write_text("#!/bin/sh\necho bwrap: setting up uid map: >&2; echo Permission denied >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{short_dir}:/usr/bin:/bin")
    settings = {"apparmor_restrict_unprivileged_userns": "1"}
    monkeypatch.setattr(probe, "_namespace_settings", lambda: settings)

    why = await probe_bwrap()

    assert why
    assert "\n" not in why
    assert why.startswith("bwrap: setting up uid map: Permission denied; sysctl -w kernel.apparmor")
    assert "0.8" in probe._hint("bwrap: Unknown option --disable-userns", settings)


def test_a_shim_gives_way_to_the_interpreter_and_home_stays_hidden(short_dir: Path) -> None:
    home = short_dir / "home"
    real = shutil.which("python3", path="/usr/bin") or pytest.skip("no python3 of the system")
    for folder in (home / "shims", home / "bin", home / "venv/bin"):
        folder.mkdir(parents=True)
    shim = home / "shims/python3"
    shim.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    shim.chmod(0o755)

    found = find_toolchain(f"{home}/shims:{home}:relative:{home}/missing:{home}/bin:/usr/bin", home=str(home))

    assert found.path == f"/usr/bin:{home}/bin"
    assert found.readable == (str(home / "bin"),)


def test_interpreters_are_asked_at_the_same_time_and_one_that_fails_is_left_out(short_dir: Path) -> None:
    home, real = short_dir / "home", short_dir / "real"
    for folder in (home / "shims", real):
        folder.mkdir(parents=True)
    os.mkfifo(short_dir / "met")
    # Each waits for the other: one opens the pipe to write, one to read.
    for name, mode in (("python3", ">"), ("node", "<")):
        (home / "shims" / name).write_text(
            f"#!/bin/sh\n: {mode} {short_dir}/met\nprintf '%s\\n' {real}/{name} {real}\n"
        )
    (home / "shims/python").write_text("#!/bin/sh\nexit 1\n")
    for name in ("python3", "python", "node"):
        (home / "shims" / name).chmod(0o755)

    found = find_toolchain(f"{home}/shims:/usr/bin", home=str(home))

    assert found.path == f"{real}:/usr/bin"
    assert found.readable == (str(real),)


def test_a_program_of_the_user_is_shown_with_the_folder_it_is_linked_to(short_dir: Path) -> None:
    home = short_dir / "home"
    package = home / ".local/share/agent/7"
    package.mkdir(parents=True)
    (home / ".local/bin").mkdir()
    (package / "agent").write_text("#!/bin/sh\n")
    (package / "agent").chmod(0o755)
    (home / ".local/bin/agent").symlink_to(package / "agent")

    found = find_toolchain(f"{home}/.local/bin:/usr/bin", home=str(home), programs=["agent", "missing", "ls"])

    assert found.readable == (str(home / ".local/bin"), str(package))


def test_the_probe_leaves_no_process_where_orphans_are_adopted() -> None:
    """A job that runs meanwhile makes this process the parent of every orphan, a sandbox's init among them."""
    need_sandbox()
    before = procfs.children_of(os.getpid())
    with containment.adopt_orphans():
        assert probe._probe() is None
        assert procfs.children_of(os.getpid()) == before
