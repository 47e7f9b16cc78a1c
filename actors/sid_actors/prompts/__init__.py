"""Prompts: what an agent is told. The pages (`*.md`) hold what is the same in every run, the modules the rest."""
