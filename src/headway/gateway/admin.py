"""The gate before routes that are for whoever operates the server."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

from headway.gateway.errors import Forbidden
from headway.gateway.exchange import Pending, Request, Response, Stream
from headway.gateway.router import Parameters, RouteHandler


def admin(handler: RouteHandler, allow_remote: bool) -> RouteHandler:
    """The handler, for peers on this host only unless allow_remote. Others get a 403."""
    if allow_remote:
        return handler

    def gated(request: Request, at: Parameters) -> Response | Pending | Stream:
        if not is_loopback(request.peer):
            raise Forbidden(
                f"this route answers to this host only, not to {request.peer or 'an unknown address'}; "
                "server.allow_remote_admin = true opens it"
            )
        return handler(request, at)

    return gated


def is_loopback(peer: str) -> bool:
    """Whether the connection comes from this host. A proxy on this host makes everybody look so."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
