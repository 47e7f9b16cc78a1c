"""What the kernel says of processes: a pure reading of /proc, nothing is changed and nothing is waited for.

`containment` finds a job's tree here, `process.JobHandle.snapshot` the evidence for why a straggler does not
end: what each process waits in, its open sockets and their state. Command lines may hold secrets; whoever
logs a snapshot redacts it. A process may be gone at any moment, so what cannot be read is left out.
"""

# ruff: noqa: PTH115, PTH123, PTH208 -- thousands of entries at a time: a Path each costs more than reading it
from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

COMMAND_LIMIT = 200  # characters of a command line that evidence keeps
ENDED = "ZX"  # states of a process that runs nothing any more: zombie, dead
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_S = os.sysconf("SC_CLK_TCK")
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
# net/tcp_states.h of Linux, by number.
_TCP_STATES = (
    *("UNKNOWN", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT"),
    *("CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"),
)


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of the process table.

    `started` (ticks since boot) tells a process from a later one of its id; `cpu_s` is its own CPU time and that of
    the children which it has waited for.
    """

    pid: int
    parent: int
    state: str
    started: int
    cpu_s: float
    threads: int = 1


@dataclass(frozen=True, slots=True)
class SocketInfo:
    """One open internet socket: its protocol, both ends as `address:port`, and its state."""

    protocol: str
    local: str
    remote: str
    state: str


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process of a job.

    `state` as ps shows it, `wchan` the kernel function it waits in, or empty, `cpu_s` as in `ProcessStat`, `ready_s` how
    long each of its threads, by id, stood ready so far without a processor, in seconds.
    """

    pid: int
    parent: int
    state: str
    wchan: str
    command: str
    cpu_s: float
    ready_s: dict[int, float]
    sockets: tuple[SocketInfo, ...]


@dataclass(frozen=True, slots=True)
class ProcessSnapshot:
    """All processes of a job at one moment, by process id of the host."""

    processes: tuple[ProcessInfo, ...]


def started_at(pid: int) -> float:
    """Return when a process was started at the latest, in seconds of the wall clock as it is set now.

    The kernel tells it in ticks, rounded down; what is older than this was there before the process.

    Raises:
        ProcessLookupError: it is gone.
    """
    stat = read_stat(pid)
    if stat is None:
        raise ProcessLookupError(pid)
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + (stat.started + 1) / _TICKS_S


def read_stat(pid: int) -> ProcessStat | None:
    """Return the process's line of the table, or None where it is gone."""
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    # The name is in parentheses and may hold anything, parentheses and newlines too (proc_pid_stat(5)).
    fields = text[text.rindex(b")") + 2 :].split()
    cpu_s = sum(map(int, fields[11:15])) / _TICKS_S
    return ProcessStat(pid, int(fields[1]), fields[0].decode(), int(fields[19]), cpu_s, int(fields[17]))


def private_bytes(pid: int) -> int:
    """Return the memory that a process holds for itself alone, in bytes; 0 where it is gone."""
    fields = (_read(f"/proc/{pid}/statm") or b"0 0 0").split()  # proc_pid_statm(5): size, resident, shared
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES


def process_ids() -> set[int]:
    """Return the ids of all processes that can be seen."""
    return {int(name) for name in os.listdir("/proc") if name.isdecimal()}


def tree(roots: Iterable[int]) -> dict[int, ProcessStat]:
    """Return `roots` and all their descendants that are alive, by id."""
    found: dict[int, ProcessStat] = {}
    seen: set[int] = set()
    pending = list(roots)
    while pending:
        pid = pending.pop()
        stat = None if pid in seen else read_stat(pid)
        seen.add(pid)
        if stat and stat.state not in ENDED:
            found[pid] = stat
            pending += children_of(pid)
    return found


def ancestors(pid: int) -> list[int]:
    """Return the process's parent, its parent, and so on, as far as they can be seen."""
    found: list[int] = []
    while (stat := read_stat(pid)) and stat.parent:
        pid = stat.parent
        found.append(pid)
    return found


def children_of(pid: int) -> list[int]:
    """Return the ids of the process's children, without reading the whole table where the kernel allows that.

    A child that is born or ends meanwhile may be missing (proc_pid_task_children(5)).
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except _GONE:
        return []
    lists = [_read(f"/proc/{pid}/task/{thread}/children") for thread in threads]
    if any(found is None for found in lists) and not Path("/proc/thread-self/children").exists():
        stats = map(read_stat, process_ids())
        return [stat.pid for stat in stats if stat and stat.parent == pid]
    return [int(child) for found in lists if found for child in found.split()]


def environment_value(pid: int, name: str) -> str | None:
    """Return a variable of the environment that the process was started with, or None."""
    for entry in (_read(f"/proc/{pid}/environ") or b"").split(b"\0"):
        key, _, value = entry.partition(b"=")
        if key == name.encode():
            return os.fsdecode(value)
    return None


def file_locks_limit(pid: int) -> int | None:
    """Return the hard limit RLIMIT_LOCKS of a process (a zombie still has it), or None for no limit."""
    for line in (_read(f"/proc/{pid}/limits") or b"").splitlines():
        if line.startswith(b"Max file locks"):
            hard = line.split()[-2]
            return int(hard) if hard.isdigit() else None
    return None


def snapshot(pids: Iterable[int]) -> ProcessSnapshot:
    """Return what each of the processes is doing; those that have ended are left out."""
    tables: dict[str, dict[str, SocketInfo]] = {}
    found = (_describe(pid, tables) for pid in sorted(pids))
    return ProcessSnapshot(tuple(info for info in found if info))


def _describe(pid: int, tables: dict[str, dict[str, SocketInfo]]) -> ProcessInfo | None:
    stat = read_stat(pid)
    if stat is None:
        return None
    wchan = (_read(f"/proc/{pid}/wchan") or b"").decode()
    command = (_read(f"/proc/{pid}/cmdline") or b"").replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return ProcessInfo(
        pid=pid,
        parent=stat.parent,
        state=stat.state,
        wchan="" if wchan == "0" else wchan,
        command=command[:COMMAND_LIMIT],
        cpu_s=stat.cpu_s,
        ready_s=_ready_s(pid),
        sockets=_sockets(pid, tables),
    )


def _ready_s(pid: int) -> dict[int, float]:
    """Return how long each thread waited on a processor's queue; empty where the kernel does not count that.

    The wait that still lasts is not in it: it is counted when it ends (sched-stats.rst of Linux).
    """
    found = {}
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except _GONE:
        return {}
    for thread in threads:
        fields = (_read(f"/proc/{pid}/task/{thread}/schedstat") or b"").split()
        if len(fields) == 3:  # on the processor, waiting for one (both in nanoseconds), turns
            found[int(thread)] = int(fields[1]) / 1e9
    return found


def _sockets(pid: int, tables: dict[str, dict[str, SocketInfo]]) -> tuple[SocketInfo, ...]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except _GONE:
        return ()
    links = [_link(f"/proc/{pid}/fd/{name}") for name in names]
    inodes = [link[len("socket:[") : -1] for link in links if link.startswith("socket:[")]
    if not inodes:
        return ()
    namespace = _link(f"/proc/{pid}/ns/net")
    if namespace not in tables:  # once a namespace: the table may be long
        tables[namespace] = {
            inode: info
            for protocol in ("tcp", "tcp6", "udp", "udp6")
            for inode, info in _socket_table(pid, protocol).items()
        }
    return tuple(tables[namespace][inode] for inode in inodes if inode in tables[namespace])


def _socket_table(pid: int, protocol: str) -> dict[str, SocketInfo]:
    found = {}
    for line in (_read(f"/proc/{pid}/net/{protocol}") or b"").decode().splitlines()[1:]:
        fields = line.split()
        number = int(fields[3], 16)
        state = _TCP_STATES[number] if number < len(_TCP_STATES) else _TCP_STATES[0]
        found[fields[9]] = SocketInfo(protocol, _address(fields[1]), _address(fields[2]), state)
    return found


def _address(text: str) -> str:
    """Turn `0100007F:1F90` (words of four bytes, each in host order) into `127.0.0.1:8080`."""
    words, port = text.split(":")
    # Both kinds of machine that this runs on are little-endian.
    raw = b"".join(bytes.fromhex(words[i : i + 8])[::-1] for i in range(0, len(words), 8))
    if len(raw) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, raw)}:{int(port, 16)}"
    return f"[{socket.inet_ntop(socket.AF_INET6, raw)}]:{int(port, 16)}"


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except _GONE:
        return None


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except _GONE:
        return ""
