"""What is right alone and wrong together in the settings of tenants, keys and admin routes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headway.config.check import join
from headway.config.settings import Server, Settings
from headway.config.tenants import Keys, LimitSettings, TenantRules

Found = tuple[str, str]
"""Place and what is wrong there."""

HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
KEY_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
PREFIX = "hw_"
"""Of a key: `hw_ID_SECRET`."""
MAX_NAME = 64
"""Bytes of a tenant's name, as a header may have it."""
OTHER = "other"
DEFAULT = "default"


def tenants(settings: Settings) -> Iterator[Found]:
    yield from naming(settings)
    yield from keys(settings)
    yield from admin(settings.server)
    for name, tenant in settings.tenants.items():
        yield from rules(join("tenants", name), tenant, settings)
    yield from rules("other_tenants", settings.other_tenants, settings)


def keyed(settings: Settings) -> bool:
    """Whether nobody gets in without a key."""
    return settings.server.require_keys or any(tenant.keys for tenant in settings.tenants.values())


def naming(settings: Settings) -> Iterator[Found]:
    """Whether each tenant can be named by a request, and by which."""
    header = settings.tenant_header
    if header and not HEADER.fullmatch(header):
        yield "tenant_header", f"expected the name of an HTTP header, got {header!r}"
    if header and keyed(settings):
        yield (
            "tenant_header",
            f"expected '' where tenants have keys, got {header!r}: the key says who it is, and whoever sends the "
            "header could say something else",
        )
    unreachable = [name for name in settings.tenants if name != DEFAULT]
    if unreachable and not header and not keyed(settings):
        yield (
            "tenants",
            f"tenant {unreachable[0]!r} can never be named by a request: it has no key (`headway keys new "
            f"{unreachable[0]}` makes one), and tenant_header is ''",
        )
    for name in settings.tenants:
        if name == OTHER:
            yield join("tenants", name), f"expected another name: in the metrics {OTHER!r} is who has no table"
        elif not 0 < len(name.encode()) <= MAX_NAME:
            yield join("tenants", name), f"expected a name of 1 to {MAX_NAME} bytes, got {len(name.encode())}"


def keys(settings: Settings) -> Iterator[Found]:
    """What a wrong entry says is never repeated: it may be the key itself."""
    known: dict[str, str] = {}
    of_tenants = {join("tenants", name) + ".keys": tenant.keys for name, tenant in settings.tenants.items()}
    lists: dict[str, Keys] = {"server.admin_keys": settings.server.admin_keys, **of_tenants}
    for place, entries in lists.items():
        for number, key in enumerate(entries):
            at = f"{place}[{number}]"
            if not KEY_ID.fullmatch(key.id):
                yield f"{at}.id", 'expected 1 to 64 letters, digits and "-", as `headway keys new` prints it'
            elif key.id in known:
                yield f"{at}.id", f"expected an id of its own, got that of {known[key.id]}"
            known[key.id] = at
            if not SHA256.fullmatch(key.sha256):
                got = "what looks like the key itself" if PREFIX in key.sha256 else f"{len(key.sha256)} character(s)"
                yield f"{at}.sha256", f"expected the 64 hexadecimal digits that `headway keys new` prints, got {got}"


def admin(server: Server) -> Iterator[Found]:
    if not server.admin_host:
        yield "server.admin_host", "expected an address or a host name, got ''"
    if server.admin_port is None:
        return
    same = (server.admin_host, server.admin_port) == (server.host, server.port)
    if same and server.admin_port and not server.unix_socket:
        yield "server.admin_port", f"expected another than server.port, got {server.admin_port} too"
    if server.allow_remote_admin:
        yield "server.allow_remote_admin", "expected false beside server.admin_port: only that port answers"


def rules(place: str, tenant: TenantRules, settings: Settings) -> Iterator[Found]:
    for number, limit in enumerate(tenant.limits):
        yield from limits(f"{place}.limits[{number}]", limit)
    classes = len(settings.scheduling.patience_ms)
    for number, priority in enumerate(tenant.classes):
        if priority >= classes:
            yield (
                f"{place}.classes[{number}]",
                f"expected at most {classes - 1}, the last class of scheduling.patience_ms, got {priority}",
            )
    longest = settings.server.request_timeout_s * 1000
    if tenant.default_deadline_ms > longest:
        yield (
            f"{place}.default_deadline_ms",
            f"expected at most server.request_timeout_s ({longest:g} ms), got {tenant.default_deadline_ms:g}",
        )


def limits(place: str, limit: LimitSettings) -> Iterator[Found]:
    if not (limit.requests_per_second or limit.tokens_per_second or limit.concurrent):
        yield (
            place,
            "expected requests_per_second, tokens_per_second or concurrent, got none of them: it limits nothing",
        )
    if 0 < limit.requests_per_second * limit.burst_s < 1:
        yield (
            f"{place}.burst_s",
            f"expected at least {1 / limit.requests_per_second:g}, got {limit.burst_s:g}: not one request would fit",
        )
    if 0 < limit.tokens_per_second * limit.burst_s < 1:
        yield (
            f"{place}.burst_s",
            f"expected at least {1 / limit.tokens_per_second:g}, got {limit.burst_s:g}: not one token would fit",
        )
    if limit.up_to and limit.up_to <= limit.longer_than:
        yield f"{place}.up_to", f"expected more than longer_than ({limit.longer_than}), got {limit.up_to}"
