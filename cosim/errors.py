"""The error that a user sees: one line, exit code 2."""

from __future__ import annotations

__all__ = ["UserError"]


class UserError(ValueError):
    """Bad input, a missing tool or a stale certificate; the message is one line that names the thing and the remedy."""
