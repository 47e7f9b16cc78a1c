"""The `command` back end: any program that reads a prompt and writes an answer."""
