"""The head of sid: decides in `core`, writes the journal in `store`, dispatches to the hands.

Imports nothing, so that `sid --version` costs nothing.
"""
