"""Every decision, as pure functions on plain data: no clock, no dice, no file, no process.

`step(state, event)` is called by the conductor alone, and by tests.
"""
