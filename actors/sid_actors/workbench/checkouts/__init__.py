"""Folders that hold exactly one tree: kept, filled, compared, handed out as worktrees, deleted."""
