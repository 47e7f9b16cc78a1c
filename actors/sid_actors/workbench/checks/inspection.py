"""Reads a candidate's changed files out of the object database and has steering and detectors look at them.

`LocalWorkbench.collect` asks it about each candidate that seal and scope let pass. It blocks and belongs in a worker
thread; what is large is left out, so that no candidate can hold the daemon with a diff. It decides by the rules of
`steering` and `detectors` alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pygit2

from sid_actors.git.trees import GITLINK, LINK, Change, Entry, content, open_repository
from sid_actors.workbench.checks.detectors import Case, FileChange, detect, sorted_out
from sid_actors.workbench.checks.seal import Refusal, Seal
from sid_actors.workbench.checks.steering import steered
from sid_protocol.settings import Settings

_FILE_LIMIT_BYTES = 256_000
_DIFF_LIMIT_BYTES = 4_000_000
_SHOWN = 3


def inspect(
    common_dir: str, differences: Sequence[Change], seal: Seal, settings: Settings
) -> tuple[Refusal | None, tuple[str, ...]]:
    """Return why a candidate is refused, or None, and the warnings.

    A refusal carries no paths: these files are free to be changed, what this change made of them is at fault.
    """
    changed = _read(open_repository(common_dir), differences)
    if paths := steered(changed, seal.free):
        why = f"what steers the test tools was changed: {', '.join(paths[:_SHOWN])}"
        return Refusal("sealed_file_violation", why, ()), ()
    case = Case(
        metric=settings.primary_metric, form=settings.benchmark_format, sealed=tuple(sorted(seal.paths))
    )
    rejecting, warning = sorted_out(detect(changed, case), settings.detectors)
    warnings = tuple(map(str, (*rejecting, *warning)))
    if not rejecting:
        return None, warnings
    more = f" and {len(rejecting) - _SHOWN} more" if len(rejecting) > _SHOWN else ""
    why = f"a detector rejects it: {'; '.join(map(str, rejecting[:_SHOWN]))}{more}"
    return Refusal("sealed_file_violation", why, ()), warnings


def _read(repo: pygit2.Repository, differences: Sequence[Change]) -> list[FileChange]:
    left = _DIFF_LIMIT_BYTES
    found = []
    for change in differences:
        texts = []
        for entry in (change.old, change.new):
            text = _text(repo, entry) if left > 0 else None
            left -= len(text or "")
            texts.append(text)
        found.append(FileChange(change.path, texts[0], texts[1]))
    return found


def _text(repo: pygit2.Repository, entry: Entry | None) -> str | None:
    if entry is None or entry.mode in (LINK, GITLINK):
        return None
    data = content(repo, entry, _FILE_LIMIT_BYTES)
    if data is None or b"\0" in data:
        return None
    return data.decode("utf-8", "replace")
