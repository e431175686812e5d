"""The gate before routes that are for whoever operates the server."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

from headway.gateway.errors import Forbidden
from headway.gateway.exchange import Pending, Request, Response, Stream
from headway.gateway.forwarded import FORWARDING, UNIX
from headway.gateway.router import Parameters, RouteHandler


def admin(handler: RouteHandler, allow_remote: bool) -> RouteHandler:
    """The handler, for peers on this host only unless allow_remote. Others get a 403.

    Whoever may open the unix socket is on this host, and its permissions say who may. What a proxy passed on is
    from elsewhere, whatever address the proxy has and whoever it names.
    """
    if allow_remote:
        return handler

    def gated(request: Request, at: Parameters) -> Response | Pending | Stream:
        by = next((name for name in FORWARDING if name in request.headers), None)
        if by is not None or not (request.peer == UNIX or is_loopback(request.peer)):
            who = f"what a proxy passes on ({by.decode()})" if by else request.peer or "an unknown address"
            raise Forbidden(
                f"this route answers to this host only, not to {who}; server.allow_remote_admin = true opens it"
            )
        return handler(request, at)

    return gated


def is_loopback(peer: str) -> bool:
    """Whether the connection comes from this host. A proxy on this host that says nothing of itself makes everybody
    look so."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
