"""Every decision, as pure functions on plain data: no clock, no dice, no file, no process.

`step(state, event)` is called by the conductor alone, and by tests. To be read in this order:

    the run           run (has `step`), transition (one step under way), state, creation, adoption, stopping
    rounds/           round, planning (fanout, review, novelty, remembering), execution, tournament
    what is late      deadlines, stragglers, classify
    measuring/        selection, then deterministic or noisy (screen, confirm, guards), each on a session;
                      words has what they say, evidence the test, calibration set-up, dice the coins
    longterm/         lessons, learning, ladder, milestones, audit, auditing
    every benchmark   conditions (who may run beside one, for how long, what came of it)
    beside the run    node, verify
    as text           describe, wording
"""
