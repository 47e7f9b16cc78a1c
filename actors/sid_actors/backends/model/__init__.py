"""The `anthropic` back end: a model behind an API, its tools, and what its calls cost."""
