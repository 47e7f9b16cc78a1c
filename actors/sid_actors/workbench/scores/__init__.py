"""A score, read from what a benchmark printed."""
