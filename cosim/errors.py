"""The errors that a user sees: one line each, exit code 2 for bad input and 1 for a check that failed."""

from __future__ import annotations

__all__ = ["CheckFailed", "UserError"]


class UserError(ValueError):
    """Bad input, a missing tool or a stale certificate; the message is one line that names the thing and the remedy."""


class CheckFailed(AssertionError):
    """Hardware and golden model differ; the message is one line that says where."""
