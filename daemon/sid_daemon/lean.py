"""Keeps the daemon small: what its libraries import and it never uses stays out, what only its start used is let go.

The imports are called by `main` and `app` before anything else wants those libraries, the rest by `app` when all is there and by
`runstore` after each round. Each library finds, while it is imported and no longer, an empty module in the place of one that
it asks for; whoever asks for that one later gets the real one.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

_AUTHORITIES = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": "/"}
"""Where OpenSSL is to look for certificates that it trusts: a file and a folder without any."""
_MAPS = Path("/proc/self/smaps")
_MADV_DONTNEED = 4
"""From Linux's `mman.h`."""


def import_structlog() -> None:
    """Import it without what it would bring along."""
    # Colours of tracebacks, and loggers for asyncio: the daemon's records are JSON, and its loop is trio's.
    with _without(rich=None, asyncio=ModuleType("asyncio")):
        importlib.import_module("structlog")


def import_pydantic() -> None:
    """Import it without what it would bring along."""
    # Of any plugin that lies in the same environment the daemon wants nothing; looking for one takes zipfile, email and more.
    metadata = ModuleType("importlib.metadata")
    vars(metadata)["entry_points"] = _none
    with _without(**{"importlib.metadata": metadata}):
        importlib.import_module("pydantic.plugin._loader")


def import_pygit2() -> None:
    """Import it without the certificates of all authorities, which libgit2 would load at once: it is never told to connect."""
    usual = {name: os.environ.get(name) for name in _AUTHORITIES}
    os.environ.update(_AUTHORITIES)
    try:
        importlib.import_module("pygit2")
    finally:
        for name, value in usual.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def let_code_go() -> None:
    """Let what was read from libraries' files go from memory: much of it was of use once, when they were loaded.

    Nothing is lost: what is taken is never written and has no changed page, so that what is wanted again is mapped again, from
    the page cache, a few pages at a time.
    """
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None:
        return
    try:
        spans = list(_unchanged(_MAPS.read_text()))
    except OSError:
        return
    for first, last in spans:
        advise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), _MADV_DONTNEED)


def let_memory_go() -> None:
    """Give back what is free between the pieces in use; otherwise the largest work of many rounds adds up. Below a millisecond."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _unchanged(maps: str) -> Iterator[tuple[int, int]]:
    """Yield where in memory lies what a file holds and nobody may write, or has written: a relocated page is changed."""
    span = (0, 0)
    for line in maps.splitlines():
        name, *values = line.split(maxsplit=5)
        if "-" in name:  # the first line of a mapping: addresses, rights, offset, device, inode, path
            first, _, last = name.partition("-")
            is_ours = len(values) == 5 and values[4].startswith("/") and "w" not in values[0]
            span = (int(first, 16), int(last, 16)) if is_ours else (0, 0)
        elif name == "Anonymous:" and values[0] == "0" and span[1]:
            yield span


def _none(**_group: str) -> tuple[()]:
    return ()


@contextmanager
def _without(**instead: ModuleType | None) -> Iterator[None]:
    """Let imports find these; None cannot be imported. A module that is there already stays."""
    placed = {name: module for name, module in instead.items() if name not in sys.modules}
    modules: dict[str, Any] = sys.modules  # None is how the import system is told that there is none
    modules.update(placed)
    try:
        yield
    finally:
        for name in placed:
            del modules[name]
