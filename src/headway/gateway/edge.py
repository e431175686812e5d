"""What a server does with every connection beyond HTTP itself, each None or never where it is not configured."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from headway.config.settings import Server
from headway.gateway.access_log import AccessLog
from headway.gateway.cors import Cors
from headway.gateway.forwarded import TrustedProxies

NEVER = sys.maxsize


@dataclass(frozen=True)
class Edge:
    """compress_from: bytes of a reply's body from which it is compressed for those who accept it."""

    compress_from: int = NEVER
    proxies: TrustedProxies | None = None
    cors: Cors | None = None
    access: AccessLog | None = None


def edge_of(server: Server) -> Edge:
    """As the settings say."""
    return Edge(
        compress_from=server.compress_replies_kb << 10 or NEVER,
        proxies=TrustedProxies(server.trusted_proxies) if server.trusted_proxies else None,
        cors=Cors(server.cors_origins) if server.cors_origins else None,
        access=AccessLog() if server.access_log else None,
    )
