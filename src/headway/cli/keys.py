"""`headway keys`: API keys for tenants and operators."""

from __future__ import annotations

from collections.abc import Iterator

import click

from headway.config.check import join
from headway.config.cross_tenants import KEY_ID, MAX_NAME
from headway.gateway.keys import NewKey, new_key


@click.group()
def keys() -> None:
    """Make API keys. The server never stores one, only its id and a hash of its secret."""


@keys.command()
@click.argument("tenant", required=False)
@click.option("--admin", is_flag=True, help="A key for admin routes and /metrics, instead of a tenant's.")
@click.option("--id", "key_id", default="", help="What the key is looked up by; made up if not given.")
def new(tenant: str | None, admin: bool, key_id: str) -> None:
    """Print a new key for TENANT, once, and the lines of the configuration that let it in.

    It is written nowhere: whoever loses it needs a new one. Several keys may be in force, so one is exchanged by adding
    the new one, and taking the old one away when nobody uses it any more; each time, reload the server.
    """
    if admin == (tenant is not None):
        raise click.UsageError("name a TENANT, or --admin")
    if tenant is not None and not 0 < len(tenant.encode()) <= MAX_NAME:
        raise click.UsageError(f"TENANT: expected 1 to {MAX_NAME} bytes, got {len(tenant.encode())}")
    if key_id and not KEY_ID.fullmatch(key_id):
        raise click.UsageError(f'--id {key_id!r}: expected 1 to 64 letters, digits and "-"')
    place = "server.admin_keys" if tenant is None else join("tenants", tenant) + ".keys"
    click.echo("\n".join(page(new_key(key_id), place)))


def page(key: NewKey, place: str) -> Iterator[str]:
    yield key.text
    yield ""
    yield "# That is the key, shown only this once. For the configuration:"
    yield f"[[{place}]]"
    yield f'id = "{key.settings.id}"'
    yield f'sha256 = "{key.settings.sha256}"'
