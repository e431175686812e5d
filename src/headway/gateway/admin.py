"""The gate before routes that are for whoever operates the server."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

from headway.config.settings import Server
from headway.gateway.errors import Forbidden, Unauthenticated
from headway.gateway.exchange import Pending, Request, Response, Stream
from headway.gateway.forwarded import FORWARDING, UNIX
from headway.gateway.keys import Keyring
from headway.gateway.router import Parameters, RouteHandler


class AdminGate:
    """Lets in, where everything else is answered too: nobody, if admin routes have an address of their own; else
    whoever has an admin key, if there are any; else this host.

    At the address of their own: whoever has an admin key if there are any, else whoever reaches it.
    """

    def __init__(self, server: Server) -> None:
        self.configure(server)

    def configure(self, server: Server) -> None:
        """From now on."""
        self._elsewhere = server.admin_port is not None
        self._keys: Keyring[bool] = Keyring((key, True) for key in server.admin_keys)
        self._open = server.allow_remote_admin

    def before(self, handler: RouteHandler) -> RouteHandler:
        """The handler behind this gate, where everything else is answered too."""

        def gated(request: Request, at: Parameters) -> Response | Pending | Stream:
            self.check(request)
            return handler(request, at)

        return gated

    def before_own(self, handler: RouteHandler) -> RouteHandler:
        """The same at the address of their own."""

        def gated(request: Request, at: Parameters) -> Response | Pending | Stream:
            if self._keys:
                self._keys.owner(request.headers)
            return handler(request, at)

        return gated

    def has_key(self, headers: dict[bytes, bytes]) -> bool:
        """Whether they hold an admin key."""
        try:
            return bool(self._keys) and self._keys.owner(headers)
        except Unauthenticated:
            return False

    def check(self, request: Request) -> None:
        """Raises Forbidden, Unauthenticated.

        Whoever may open the unix socket is on this host, and its permissions say who may. What a proxy passed on is
        from elsewhere, whatever address the proxy has and whoever it names.
        """
        if self._elsewhere:
            raise Forbidden("this route answers at an address of its own, see server.admin_port")
        if self._keys:
            self._keys.owner(request.headers)
            return
        by = next((name for name in FORWARDING if name in request.headers), None)
        local = request.peer == UNIX or is_loopback(request.peer)
        if (by is not None or not local) and not self._open:
            who = f"what a proxy passes on ({by.decode()})" if by else request.peer or "an unknown address"
            raise Forbidden(
                f"this route answers to this host only, not to {who}; server.admin_keys, server.admin_port or "
                "server.allow_remote_admin = true open it"
            )


def is_loopback(peer: str) -> bool:
    """Whether the connection comes from this host. A proxy on this host that says nothing of itself makes everybody
    look so."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def local_gate() -> AdminGate:
    """This host."""
    return AdminGate(Server())
