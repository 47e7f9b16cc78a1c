"""What an agent or a benchmark can leave in a folder for whoever gets it next: the corpus of the kept checkouts' tests.

Each is a function of the folder, which holds `FILES`. `look` returns all that can be told apart of a folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import shutil
import socket
import stat
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

FILES = {
    ".gitignore": "*.log\nbuild/\n",
    "app.py": "COST = 10\n",
    "lib/part.py": "y = 2\n",
    "lib/deep/er.py": "z = 3\n",
    "a\nb/c d\u00fc.txt": "x\n",
}
_NOATIME = 0x80  # any flag of chattr stands for all


def git(folder: Path, *args: str) -> None:
    subprocess.run(["git", "-C", folder, *args], check=True, capture_output=True)


def edit(top: Path) -> None:
    (top / "app.py").write_text("COST = 99\n")


def edit_with_old_times(top: Path) -> None:
    status = (top / "app.py").stat()
    (top / "app.py").write_text("COST = 11\n")
    os.utime(top / "app.py", ns=(status.st_atime_ns, status.st_mtime_ns))


def edit_in_memory(top: Path) -> None:
    with (top / "app.py").open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[0:4] = b"GAIN"


def edit_by_another_name(top: Path) -> None:
    os.link(top / "app.py", top / "alias")
    (top / "alias").write_text("COST = 0\n")
    (top / "alias").unlink()


def tie_two_files(top: Path) -> None:
    (top / "lib/part.py").unlink()
    os.link(top / "app.py", top / "lib/part.py")


def tie_to_outside(top: Path) -> None:
    os.link(top / "app.py", top.parent / "outside")


def swap_for_the_same(top: Path) -> None:
    shutil.copyfile(top / "app.py", top / "new")
    (top / "new").rename(top / "app.py")


def new_files(top: Path) -> None:
    (top / "x.log").write_text("ignored")
    (top / "build").mkdir()
    (top / "build/x").write_text("ignored")
    (top / "lib/deep/new.py").write_text("new")
    (top / "lib/.hidden").write_text("hidden")
    (top / "line\nend").write_text("new")


def empty_folders(top: Path) -> None:
    (top / "empty/deeper").mkdir(parents=True)


def nested_repository(top: Path) -> None:
    git(top, "init", "-q", str(top / "lib/nested"))
    git(top, "init", "-q", str(top / "lib"))


def modes(top: Path) -> None:
    (top / "app.py").chmod(0o755)
    (top / "lib/part.py").chmod(0o4755)
    (top / "lib/deep").chmod(0o2777)
    top.chmod(0o700)


def locked_up(top: Path) -> None:
    (top / "lib/deep/er.py").chmod(0)
    (top / "lib/deep").chmod(0)


def attributes(top: Path) -> None:
    for path in (top / "app.py", top / "lib", top):
        with contextlib.suppress(OSError):  # not on this file system
            os.setxattr(path, "user.left", b"x")


def rights_to_inherit(top: Path) -> None:
    """A default access list: what is made in the folder later would be anybody's to write."""
    tags = ((0x01, 7, 0xFFFFFFFF), (0x04, 7, 0xFFFFFFFF), (0x20, 7, 0xFFFFFFFF))
    with contextlib.suppress(OSError):
        value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *tag) for tag in tags)
        os.setxattr(top / "lib", "system.posix_acl_default", value)


def flagged_folder(top: Path) -> None:
    handle = os.open(top / "lib", os.O_RDONLY)
    with contextlib.suppress(OSError):
        fcntl.ioctl(handle, 0x40086602, struct.pack("=l", _NOATIME))
    os.close(handle)


def gone(top: Path) -> None:
    shutil.rmtree(top / "lib")
    (top / "app.py").unlink()


def folder_is_a_link(top: Path) -> None:
    (top / "lib").rename(top.parent / "taken")
    (top / "lib").symlink_to(top.parent / "taken")


def file_is_a_folder(top: Path) -> None:
    (top / "app.py").unlink()
    (top / "app.py").mkdir()
    (top / "app.py/x").write_text("x")


def folder_is_a_file(top: Path) -> None:
    shutil.rmtree(top / "lib")
    (top / "lib").write_text("x")


def odd_kinds(top: Path) -> None:
    os.mkfifo(top / "pipe")
    (top / "app.py").unlink()
    os.mkfifo(top / "app.py")
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(top)
        bound.bind("s")
        os.chdir(here)


def moved_folder(top: Path) -> None:
    (top / "lib").rename(top / "was")
    (top / "was/deep").rename(top / "lib")


def git_replaced(top: Path) -> None:
    (top / ".git").unlink()
    git(top, "init", "-q", str(top))
    (top / ".git/hooks/post-checkout").write_text("#!/bin/sh\ntouch owned\n")


LEAVINGS: tuple[Callable[[Path], None], ...] = (
    *(edit, edit_with_old_times, edit_in_memory, edit_by_another_name, tie_two_files, tie_to_outside),
    *(swap_for_the_same, new_files, empty_folders, nested_repository, modes, locked_up, attributes),
    *(
        rights_to_inherit,
        flagged_folder,
        gone,
        folder_is_a_link,
        file_is_a_folder,
        folder_is_a_file,
        odd_kinds,
    ),
    *(moved_folder, git_replaced),
)


def look(top: Path) -> dict[str, tuple[object, ...]]:
    """Return every path of a folder, git's own file aside, with all that a program could tell about it."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (top, *sorted(top.rglob("*"))):
        status = path.lstat()
        content: object = None
        if stat.S_ISLNK(status.st_mode):
            content = path.readlink()
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        links = status.st_nlink if stat.S_ISREG(status.st_mode) else 1
        listed = os.listxattr(path, follow_symlinks=False)
        name = str(path.relative_to(top))
        if name != ".git":
            kept = tuple(one for one in listed if not one.startswith("security."))
            found[name] = (status.st_mode, status.st_uid, links, kept, _flags(path, status), content)
    return found


def _flags(path: Path, status: os.stat_result) -> int:
    if not stat.S_ISDIR(status.st_mode):
        return 0
    handle = os.open(path, os.O_RDONLY)
    try:
        return int(struct.unpack("=l", fcntl.ioctl(handle, 0x80086601, bytes(4)))[0]) & _NOATIME
    except OSError:
        return 0
    finally:
        os.close(handle)
