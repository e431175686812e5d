"""Why workers are lost, in a few words that can be a label: the supervisor's sentences name codes and messages."""

from __future__ import annotations

KINDS = (
    ("signal", "signal"),
    ("exit code", "exit"),
    ("not ready within", "start_timeout"),
    ("load failed", "load_failed"),
    ("could not be started", "spawn_failed"),
    ("channel closed", "channel_closed"),
    ("protocol violation", "protocol_violation"),
)


def cause_kind(cause: str) -> str:
    """ "other" for a sentence that begins in no known way."""
    return next((kind for start, kind in KINDS if cause.startswith(start)), "other")
