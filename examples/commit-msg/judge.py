"""Four rules for a commit message, a quarter of the score each."""

import json
import re
import sys
from pathlib import Path

PREFIX = re.compile(r"(?:feat|fix|docs|test|perf|refactor)(?:\([a-z0-9_-]+\))?: ")
LONGEST = 72


def violations(message):
    """Return the names of the rules that a message breaks."""
    prefix = PREFIX.match(message)
    verb = message[prefix.end() :].split(" ")[0] if prefix else ""
    broken = {
        "prefix": not prefix,
        "length": len(message) > LONGEST,
        "mood": verb != verb.lower() or verb.endswith("ed"),
        "period": message.endswith("."),
    }
    return [name for name, is_broken in broken.items() if is_broken]


def main():
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    answer = (folder / "state.md").read_text().rsplit(f"--- round {number} ---\n", 1)[-1].strip()
    broken = violations(answer)
    event = {
        "run_id": folder.name,
        "round": number,
        "type": "judge_result",
        "score": 1 - len(broken) / 4,
        "violations": broken,
        "detail": {"message": answer, "length": len(answer)},
    }
    with (folder / "events.jsonl").open("a") as events:
        events.write(json.dumps(event) + "\n")


main()
