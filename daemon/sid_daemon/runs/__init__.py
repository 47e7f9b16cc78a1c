"""Runs: events to the core, to the disk and to the log; commands to actors.

To be read in this order:

    all runs           host (choosing: which one is meant; charts)
    one run            conductor (folding, deadline_watch, announcing)
    what it acts with  hands (ground, steward: how a round is prepared; trackview: what agents may know)
    what it keeps      runstore (snapshots, recorded_rounds)
    after a kill       log_recovery
"""
