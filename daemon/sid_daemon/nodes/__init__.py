"""Nodes: a prompt, a judge and any program as the model, until the judge is content."""
