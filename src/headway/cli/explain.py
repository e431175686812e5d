"""`headway explain`: what a running server does with a model, and why."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from headway.bench.address import Address, advice
from headway.cli.announce import ADMIN_KEY
from headway.cli.common import address, cacert_option, insecure_option
from headway.cli.explain_page import page

TIMEOUT_S = 10


@click.command()
@click.argument("model")
@click.option(
    "--url", default="http://127.0.0.1:8000", show_default=True, help="The server: http://, https:// or unix:/PATH."
)
@click.option("--version", type=click.IntRange(1), default=None, help="Not named: the version answered by default.")
@click.option("--key", envvar=ADMIN_KEY, default="", help=f"An admin key; better in the variable {ADMIN_KEY}.")
@click.option("--json", "as_json", is_flag=True, help="Print the server's answer as it is.")
@cacert_option
@insecure_option
def explain(
    model: str, url: str, version: int | None, key: str, as_json: bool, cacert: Path | None, insecure: bool
) -> None:
    """Show what is in force for MODEL and where each value comes from, what its batches are predicted to take,
    what waits, and what an SLO leaves for waiting.

    The server answers this to its own host only, unless there is server.admin_port (name that in --url),
    server.admin_keys (a key is wanted) or server.allow_remote_admin.
    """
    path = f"/v2/models/{quote(model, safe='')}" + (f"/versions/{version}" if version else "") + "/explain"
    told = ask(address(url, cacert, insecure), path, {"authorization": f"Bearer {key}"} if key else {})
    click.echo(json.dumps(told, indent=2, ensure_ascii=False) if as_json else "\n".join(page(told)))


def ask(server: Address, path: str, headers: dict[str, str], method: str = "GET") -> dict[str, Any]:
    """The server's JSON. Raises ClickException where there is no such answer."""
    connection = server.connection(TIMEOUT_S)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        body = reply.read()
    except OSError as error:
        raise click.ClickException(f"{server.name} does not answer: {error}{advice(error)}") from None
    except http.client.HTTPException as error:
        raise click.ClickException(f"{server.name} does not answer in HTTP: {error}") from None
    finally:
        connection.close()
    return answer(server.name, reply.status, body)


def answer(host: str, status: int, body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise click.ClickException(f"{host} answered {status} with something that is not a JSON object: {body[:200]!r}")
    if status != 200:
        raise click.ClickException(f"{host} answered {status}: {told.get('error', body[:200])}")
    return told
