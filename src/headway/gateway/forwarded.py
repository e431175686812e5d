"""Who a request comes from, when proxies that are trusted say so.

Each proxy appends the address that it was spoken to by, so the list is read from its end: the last address that is
not a trusted proxy's is the client's. What stands before it, anybody may have written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

UNIX = "unix"
"""The peer of a connection by the unix socket."""
FORWARDING = (b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via")
"""A request with any of these did not come from its peer."""


class TrustedProxies:
    """entries: addresses, networks, or UNIX. Raises ValueError for anything else."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._unix = UNIX in entries
        self._networks = [ip_network(entry) for entry in entries if entry != UNIX]

    def trusts(self, peer: str) -> bool:
        if peer == UNIX:
            return self._unix
        address = parse(peer)
        return address is not None and any(address in network for network in self._networks)

    def client(self, peer: str, headers: dict[bytes, bytes]) -> str:
        """peer: trusted. Its own address where the headers name nobody, or contradict each other: a proxy that
        writes one of them may pass the other on as the client wrote it."""
        told = {
            self._last_stranger(peer, list(nodes))
            for nodes in (_x_forwarded_for(headers), _forwarded(headers))
            if nodes is not None
        }
        return told.pop() if len(told) == 1 else peer

    def _last_stranger(self, peer: str, nodes: list[str]) -> str:
        nearest = peer
        for node in reversed(nodes):
            address = parse(node)
            if address is None:
                break  # "unknown" or a made-up name: whoever wrote it is as far as we can tell
            nearest = str(address)
            if not self.trusts(nearest):
                break
        return nearest


def parse(node: str) -> IPv4Address | IPv6Address | None:
    """An address, perhaps with a port, perhaps in brackets, perhaps an IPv4 one written as IPv6."""
    node = node.strip()
    if node.startswith("["):
        node = node[1:].partition("]")[0]
    elif node.count(":") == 1:
        node = node.partition(":")[0]
    try:
        address = ip_address(node.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _x_forwarded_for(headers: dict[bytes, bytes]) -> Iterator[str] | None:
    value = headers.get(b"x-forwarded-for")
    return iter(value.decode("latin-1").split(",")) if value is not None else None


def _forwarded(headers: dict[bytes, bytes]) -> Iterator[str] | None:
    """RFC 7239: `for=192.0.2.1;proto=https, for="[2001:db8::1]:4711"`."""
    value = headers.get(b"forwarded")
    return map(_node, value.decode("latin-1").split(",")) if value is not None else None


def _node(element: str) -> str:
    for pair in element.split(";"):
        name, _, value = pair.strip().partition("=")
        if name.lower() == "for":
            return value.strip('"')
    return ""
