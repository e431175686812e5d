"""The one exception of the core: our own bug, with its story. It is never swallowed."""

from __future__ import annotations


class InvariantViolation(Exception):
    """Something that cannot happen has happened. The message names the thing and what was expected."""
