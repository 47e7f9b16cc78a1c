"""Recordings of runs, and runs made again from them: no model, no benchmark, the same commits."""
