#!/usr/bin/env bash
# judge.sh RUN_DIR ROUND: look at the last answer in state.md, add one judge_result to events.jsonl.
exec python3 -IS "$(dirname "$0")/judge.py" "$@"
