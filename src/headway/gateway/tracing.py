"""Trace context (W3C): which trace a request belongs to."""

from __future__ import annotations

import re

_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
"""version, trace, parent, flags; later versions may add more. All zeros and version ff are no trace."""


def trace_id(traceparent: bytes) -> str | None:
    """The trace's 32 hexadecimal digits; None where the header is malformed, which by the specification is as if it
    were not there."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or (match[2] is not None and traceparent.startswith(b"00")):
        return None
    return match[1].decode("ascii")
