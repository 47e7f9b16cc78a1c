"""An agent without a model: its ideas stand in a JSON file, in order; each planner takes the next one of its round.

usage: scripted_agent.py IDEAS.json, as `agent_command`. An idea: hypothesis, family, file, and the file's new text.
"""

import json
import os
import sys
from pathlib import Path

POINTS = (
    "h001_hypothesis_count",
    "h002_family_streak",
    "h003_intra_round_diversity",
    "schema_valid",
    "history_aware",
)

# A brief has at least three ideas, of two families.
BESIDES = (
    {"hypothesis": "Take the work apart by hand and look where it goes", "family": "architecture"},
    {"hypothesis": "Keep what is looked up most often in another shape", "family": "data"},
)


def planned(ideas):
    """Return the plan of this planner in this round."""
    mine = ord(os.environ["SID_AGENT_ID"][-1]) - ord("a")
    idea = ideas[(int(os.environ["SID_ITERATION"]) - 1 + mine) % len(ideas)]
    return {
        "hypothesis": idea["hypothesis"],
        "approach_family": idea["family"],
        "target_files": [idea["file"]],
        "steps": [{"step": 1, "file": idea["file"], "change": "\n".join(idea["text"]) + "\n"}],
    }


def main():
    """Answer one turn."""
    ideas = json.loads(Path(sys.argv[1]).read_text())
    sys.stdin.read()  # the prompt: a model needs it
    match os.environ["SID_ROLE"]:
        case "researcher":
            known = [
                {"title": idea["hypothesis"], "approach_family": idea["family"], "confidence": "medium"}
                for idea in (*ideas, *BESIDES)
            ]
            print(json.dumps({"repo_analysis_summary": "Small.", "ideas": known}))
        case "planner":
            print(json.dumps(planned(ideas)))
        case "architect":
            print(json.dumps({"verdict": "approve"}))
        case "critic":
            print(json.dumps({**dict.fromkeys(POINTS, "pass"), "verdict": "approved"}))
        case "executor":
            for step in json.loads(Path(os.environ["SID_PLAN_FILE"]).read_text())["steps"]:
                Path(step["file"]).write_text(step["change"])
            print("done as planned")


main()
