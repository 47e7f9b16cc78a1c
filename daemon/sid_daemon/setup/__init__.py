"""The set-up gate: nothing runs before goal, benchmark, harness and trust are all there."""
