"""The structured log: what it tells of a run, its files, and those who follow it."""
