"""Runs: events to the core, to the disk and to the log; commands to actors."""
