"""The hands of sid: actors, their supervisor, agent back ends and the workbench.

Imports nothing, so that a back end that is not used costs nothing.
"""
