"""Git: what a repository is, its refs and trees, merges, and what is told of it."""
