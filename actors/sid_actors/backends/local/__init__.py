"""The engine of the `local` back end: real improvements of Python programs without a model or a network.

A survey looks at a checkout and names ideas, each a recipe; applying a recipe edits one file. Both run in
a child process (`child`), because they read code that nobody vouches for. Nothing here runs that code,
knows git, or decides what is kept: the benchmark does.
"""
