# An agent that costs next to nothing: raises value.txt by ten a round, planner_a by one more than planner_b, and so on.
# Run as `sh agent.sh`; it needs no tool beside the shell.
n=$SID_ITERATION
case $SID_AGENT_ID in *_a | *_1) k=0 ;; *_b | *_2) k=1 ;; *_c | *_3) k=2 ;; *) k=3 ;; esac
set -- optimization data infrastructure architecture training_config testing documentation
shift $(((n + 2 * k) % 7))
case $SID_ROLE in
researcher)
  idea='"source": "the code", "evidence": "it is small", "confidence": "high", "estimated_impact": "10"'
  echo "{\"repo_analysis_summary\": \"One number.\", \"ideas\": [
    {\"title\": \"Raise it by $n\", \"approach_family\": \"data\", $idea},
    {\"title\": \"Raise it more\", \"approach_family\": \"optimization\", $idea},
    {\"title\": \"Raise it most\", \"approach_family\": \"testing\", $idea}]}"
  ;;
planner)
  v=$((10 * n - k))
  echo "{\"hypothesis\": \"Set the value to $v: it counts directly\", \"approach_family\": \"$1\", \"target_files\": [\"value.txt\"],
    \"steps\": [{\"step\": 1, \"file\": \"value.txt\", \"change\": \"$v\"}],
    \"expected_outcome\": {\"metric\": \"primary\", \"estimated_impact\": \"+10\", \"rationale\": \"it is the score\"},
    \"history_reference\": {\"builds_on\": \"none\", \"avoids\": \"none\"}}"
  ;;
architect) echo '{"verdict": "approve", "feedback": "Do it.", "structural_concerns": []}' ;;
critic)
  echo '{"h001_hypothesis_count": "pass", "h002_family_streak": "pass", "h003_intra_round_diversity": "pass",
    "schema_valid": "pass", "history_aware": "pass", "verdict": "approved", "rejection_reason": null}'
  ;;
executor) echo $((10 * n - k)) > value.txt ;;
esac
