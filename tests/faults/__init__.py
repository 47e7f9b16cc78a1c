"""Crash points and bad surroundings: nothing is lost, nothing is done twice, nothing is left behind."""
