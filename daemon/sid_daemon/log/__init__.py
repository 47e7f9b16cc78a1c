"""The structured log: what it tells of a run, its files, and those who follow it.

To be read in this order:

    what it tells of a run    record, event_records (run_records, lesson_records)
    where it goes             logs, files
    who follows it            subscribers
"""
