"""The words of sid: records, settings, events, commands and the RPC method table.

Imports nothing, so that `ids`, `errors`, `jsonrpc` and `locations` stay usable without pydantic.
"""

__version__ = "0.1.0"

PROTOCOL = 1
"""Of the RPC methods; grows when a method or a field changes its meaning."""
