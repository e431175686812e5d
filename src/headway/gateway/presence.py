"""Whether the other end of a connection is still there, asked of the system rather than by reading.

Closing a connection and closing one's own half of it look the same until something is sent: only then does the system
of a client that is gone refuse it. So a probe is sent that a client that still reads passes over.
"""

from __future__ import annotations

import asyncio
import select
from enum import Enum

from headway.gateway.exchange import EVENT_STREAM, Request, Stream

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Any client that speaks HTTP/1.1 must take one before a reply (RFC 9110, 15.2)."""
COMMENT = b":\n\n"
"""In an event stream: what readers pass over."""
PROBE_EVERY_S = 10.0
LOOK_AFTER_S = 0.05
"""After a probe; later it is looked at every sweep."""

_HALF = getattr(select, "POLLRDHUP", 0)
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class Presence(Enum):
    OPEN = "open"
    HALF = "half"
    """It sends nothing more; whether it reads is not known."""
    GONE = "gone"


def presence(transport: asyncio.Transport) -> Presence:
    """Nothing is read. Costs two system calls. A transport without a socket counts as open: it tells when it closes."""
    socket = transport.get_extra_info("socket")
    if socket is None:
        return Presence.OPEN
    descriptor = socket.fileno()
    if descriptor < 0:
        return Presence.GONE
    poll = select.poll()
    poll.register(descriptor, _HALF)
    seen = poll.poll(0)
    found = seen[0][1] if seen else 0
    return Presence.GONE if found & _GONE else Presence.HALF if found & _HALF else Presence.OPEN


def probe(transport: asyncio.Transport, first: Request, begun: bool) -> None:
    """first: the request whose reply is next, or is being written (begun)."""
    if begun:
        if isinstance(first.reply, Stream) and first.reply.content_type == EVENT_STREAM:
            first.reply.send(COMMENT)
    elif first.version == "1.1":
        transport.write(CONTINUE)
