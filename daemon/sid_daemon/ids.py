"""Makes run ids: 12 characters that nobody confuses, from the system's randomness."""

from __future__ import annotations

import secrets

ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
LENGTH = 12


def new_run_id() -> str:
    """Return a fresh run id."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
