"""How things are named: planners, executors, branches, tags, worktrees, slugs.

Pure string functions, free of pydantic. The names are promises (`interfaces.md`, Names and places).
"""

from __future__ import annotations


def slug(text: str, joiner: str = "-") -> str:
    """Fold text to lowercase ASCII words joined by `joiner`; `default` when nothing is left.

    >>> slug("Schnellere Größe!")
    'schnellere-grosse'
    """
    plain = text.lower() if text.isascii() else _folded(text)
    words = "".join(char if char.isalnum() else " " for char in plain).split()
    return joiner.join(words) or "default"


def _folded(text: str) -> str:
    import unicodedata  # neither this nor `re` where a topic is ASCII: `sictl status` is to start at once

    plain = text.replace("ß", "ss").replace("ẞ", "ss")
    return unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode().lower()


def topic_slug(topic: str) -> str:
    """Return the slug of a topic: words joined by `-`, at most 60 characters."""
    return slug(topic)[:60].rstrip("-")


def goal_slug(objective: str) -> str:
    """Return the goal's slug: words joined by `_`, at most 60 characters."""
    return slug(objective, "_")[:60].rstrip("_")


def planner_letters(number: int) -> str:
    """Return the letters of the `number`-th planner (1 → a, 26 → z, 27 → aa).

    Raises:
        ValueError: `number` is below 1.
    """
    if number < 1:
        raise ValueError(f"planner number must be at least 1, not {number}")
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters


def planner_number(planner: str) -> int:
    """Return the number of `planner_<letters>`, the inverse of `planner_letters`."""
    number = 0
    for letter in planner.removeprefix("planner_"):
        number = number * 26 + ord(letter) - ord("a") + 1
    return number


def planner_id(number: int) -> str:
    """Return `planner_<x>` of the `number`-th planner."""
    return f"planner_{planner_letters(number)}"


def executor_id(number: int) -> str:
    """Return `executor_<k>`."""
    return f"executor_{number}"


def executor_number(executor: str) -> int:
    """Return the k of `executor_<k>`."""
    return int(executor.removeprefix("executor_"))


def plan_id(iteration: int, planner: str) -> str:
    """Return `round_<n>_planner_<x>`."""
    return f"round_{iteration}_{planner}"


def _in_topic(kind: str, topic: str, name: str) -> str:
    return f"{kind}/{name}" if topic == "default" else f"{kind}/{topic}/{name}"


def improve_branch(goal: str) -> str:
    """Return the improvement branch of a goal's slug."""
    return f"improve/{goal}"


def side_ref(goal: str) -> str:
    """Return where wins are kept while the user has the improvement branch checked out."""
    return f"refs/sid/{goal}"


def experiment_branch(topic: str, iteration: int, executor: str) -> str:
    """Return the branch of one candidate; a topic other than `default` puts its slug first."""
    return _in_topic("experiment", topic, f"round_{iteration}_{executor}")


def archive_tag(topic: str, iteration: int, executor: str) -> str:
    """Return the tag under which a candidate that lost is kept."""
    return _in_topic("archive", topic, f"round_{iteration}_{executor}")


def worktree_name(topic: str, iteration: int, executor: str) -> str:
    """Return the folder of one candidate under `worktrees/`."""
    name = f"round_{iteration}_{executor}"
    return name if topic == "default" else f"{topic}/{name}"
